"""The commands, a function each: parse, call one function, print. Heavy imports are inside them, so that help is instant."""
