"""Rewards: functions of completions, weighed and summed."""
