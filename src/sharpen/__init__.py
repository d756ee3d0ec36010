"""Post-train reasoning language models with verifiable rewards, and see what the training really changed.

The command line's functions, from Python:

    import sharpen

    recipe = sharpen.load_recipe("recipes/quickstart.toml", ["training.steps=5"])
    result = sharpen.train(recipe, recipe_path="recipes/quickstart.toml")
    print(result.comparison.change.pass_at_k[1])

They are imported when they are first used, so that `import sharpen` is instant.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_WHERE = {
    "load_recipe": "sharpen.recipe",
    "train": "sharpen.pipelines.train",
    "evaluate_model": "sharpen.pipelines.evaluate",
    "sample_model": "sharpen.pipelines.evaluate",
    "post_train": "sharpen.pipelines.post_train",
    "make_tiny": "sharpen.pipelines.make_tiny",
    "load_comparison": "sharpen.pipelines.compare_methods",
    "compare_methods": "sharpen.pipelines.compare_methods",
    "METHODS": "sharpen.methods",
}
__all__ = [
    "METHODS",
    "compare_methods",
    "evaluate_model",
    "load_comparison",
    "load_recipe",
    "make_tiny",
    "post_train",
    "sample_model",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'sharpen' has no attribute '{name}'")
    return getattr(import_module(_WHERE[name]), name)
