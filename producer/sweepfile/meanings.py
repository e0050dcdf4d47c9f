"""What each key of a sweep file means, in a line: an editor shows it beside the key.

Imported by publish only. The keys themselves, and what they may hold, stand in schema and early.
"""

from __future__ import annotations

from collections.abc import Mapping

TOP: Mapping[str, str] = {
    "method": "How sets are chosen: every combination (grid), draws (random), from results (bayes)",
    "parameters": "What is searched: a mapping of names to values, ranges or distributions",
    "program": "The script that trains: from the working directory, else from this file's",
    "command": "How the program is started: words, with macros such as ${program} and ${args}",
    "trainer": "The function that trains instead of a program: digits, or package.module:function",
    "code": "The directory whose files go with the sweep to workers elsewhere",
    "resident": "The trainer's process stays from trial to trial",
    "wandb": "What `import wandb` gives the program: a stand-in, the real one too, or that alone",
    "metric": "What is optimised",
    "early_terminate": "How trials that do badly are ended early",
    "run_cap": "The most trials of the sweep",
    "seed": "Another seed gives other draws, another order and other seeds of trials",
    "order": "Whether a grid is run in its order or shuffled",
    "sampler": "Who chooses the sets of method bayes",
    "replicates": "So many trials of each set, each with a seed of its own; ranked by their mean",
    "when": "Which parameters exist only where others have certain values",
    "exclude": "Sets that are not run: a list of parts of sets",
    "points": "Sets that are run before all others",
    "name": "What the sweep is called; its id begins with it",
    "description": "Kept and shown",
    "project": "Kept and shown; W&B's",
    "entity": "Kept and shown; W&B's",
    "apiVersion": "Kept; W&B's",
    "kind": "Kept; W&B's",
    "controller": "W&B's; only {type: local} can be meant here",
    "queue": "The class of workers that run it",
    "owner": "Who it belongs to; by default who enqueues it",
    "priority": "A higher one is claimed first",
    "max_parallel": "The most trials that run at the same time; 0 for no limit",
    "retries": "How many failures of a trial are forgiven",
    "timeout": "The longest a trial may run: seconds, or 90s, 15m, 2h",
    "stall": "How long a trial may neither report nor print before it is ended",
    "keep": "Whose checkpoints and artifacts stay",
    "pass_env": "Variables of a worker's environment that the program gets in a pod",
}
METRIC: Mapping[str, str] = {
    "name": "The name under which trials report it",
    "goal": "Which way it is better",
    "target": "Once a trial reaches it, no further one starts",
    "impute": "What a failed trial counts as, for method bayes",
    "impute_while_running": "What a running trial counts as, for method bayes",
    "value": "Which of a trial's values is its objective: the last or the best",
}
PARAMETER: Mapping[str, str] = {
    "value": "The one value",
    "values": "The values to choose from",
    "probabilities": "How likely each of the values is",
    "distribution": "How values are drawn; follows from the other keys where it is left out",
    "min": "The lower end (of log_uniform: its natural logarithm)",
    "max": "The upper end (of log_uniform: its natural logarithm)",
    "mu": "The mean (of log_normal: of the logarithm); 0",
    "sigma": "The standard deviation (of log_normal: of the logarithm); 1",
    "q": "Values are rounded to multiples of it; 1",
    "a": "The first shape of a beta distribution; 1",
    "b": "The second shape of a beta distribution; 1",
    "parameters": "Parameters below this one; a set then has a mapping here",
}
