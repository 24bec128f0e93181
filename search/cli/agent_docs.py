"""`hpsearch agent-docs`: a page for coding agents, of what the commands know of themselves."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import typer

from . import printing

NOT_FOR_AGENTS = ("agent-docs", "dashboard", "delete", "login", "mcp", "serve", "token", "top", "work")
PAGE = """\
---
name: hpsearch
description: Search the hyperparameters of a training script with the command hpsearch, and take the winner.
  Use it when asked to tune, sweep or optimize hyperparameters, or to compare configurations of a training.
---

# Search a script's hyperparameters with hpsearch

Never loop over trainings yourself. hpsearch proposes the space from the script, runs trials in parallel,
stops bad ones early, resumes after a kill, trains the best again with new seeds, and says how sure the
winner is. A *space* is a YAML file: what to train, which parameters, how long. A *study* is a search by its
name, kept in `hpsearch.db`.

## The steps

1. **Propose** a space from the script, which is read and not run. Then read the file: narrow it to the
   parameters that matter, correct ranges you know better, keep the present values as `baseline`, and fill
   in what it asks for.

       hpsearch init --from train.py -o space.yaml

2. **Validate** until nothing is left to mend. Each mistake has its file, line and column; the exit code is
   2.

       hpsearch validate space.yaml

3. **Plan**, always, before a search: it measures for up to a minute and tells when the search would end,
   how far trials get, and what of the budget is not sensible. Tell your user when it ends, and what it
   takes.

       hpsearch plan space.yaml --time 30m --json

4. **Run** it. The same command continues a search that was interrupted. It ends by its budget; run it in
   the background where your shell ends commands after some minutes.

       hpsearch run space.yaml --time 30m --plain

   Where a server runs (`hpsearch serve`), submit instead, and leave:

       hpsearch --server local run space.yaml --time 30m --detach

5. **Wait** for it: the command returns when the search is over. Of a search elsewhere, look no more than
   once a minute.

       hpsearch show NAME --json

6. **Read the evidence first**, then the value. `confirmed` in `best` is null while nothing was trained
   again; the best of many trainings flatters itself. Say to your user which of these holds, with the
   interval:

EVIDENCE

       hpsearch best NAME --json
       hpsearch show NAME
       hpsearch trials NAME --json

   Where it is unconfirmed and that matters, run again with `--confirm` and more time. Where ranges were too
   narrow, this says so, with wider ones to paste:

       hpsearch show NAME --ranges

7. **Export** the winner, and train it for real.

       hpsearch export NAME -o best.yaml
       hpsearch export NAME --format command
       hpsearch train best.yaml

   Forms: FORMS.

## What the script has to do

It takes parameters as options (argparse, click, Typer, Hydra, HfArgumentParser and others are found) and
prints its metric: `epoch 3 val_loss 0.41`, a line of JSON `{"step": 3, "val_loss": 0.41}`, or a logger's
files. With `from hpsearch.objectives import report` it says `report(val_loss, step=step)`. A script that
saves into `$HPSEARCH_CHECKPOINT` before it reports, and resumes from `$HPSEARCH_RESUME_FROM` where that is
set, can be paused.

A function works as well, as `objective: "file.py:train"`: `def train(trial)` reads
`trial.params["learning_rate"]`, calls `trial.report(loss, step=step)`, and returns the loss. What hpsearch
brings itself:

OBJECTIVES

## A space

```yaml
version: 1
name: mine
objective: {command: [python, train.py, "${args}"]}
metric: val_loss
goal: minimize
parameters:
  learning_rate: {min: 1.0e-4, max: 1.0e-1, log: true}
  dropout: {min: 0.0, max: 0.3}
  optimizer: [adamw, sgd]
  epochs: 9
baseline: {learning_rate: 1.0e-3, dropout: 0.1, optimizer: adamw}
early_stopping: {method: asha, min: 1, max: 9, eta: 3, resource: epochs}
budget: {trials: 40, time: 30m}
```

`max` of early stopping is the last step that a training reports. A budget of `time` is kept; with `trials`
alone a search ends when they are done. Samplers: SAMPLERS. Early stopping: STOPPING. `hpsearch schema`
prints the JSON Schema of all fields, and `hpsearch init OBJECTIVE` a commented space; for LoRA on a Hugging
Face model `hpsearch init hf_lora --model FOLDER`.

## When something fails

- Exit codes: 0 done, 1 failed, 2 wrong use or a wrong space, 130 interrupted. Messages say what is allowed.
- A trial that diverges or runs out of memory is a result, which the search avoids from then on. A failed
  one has a reason; mend the script, then try those again:

      hpsearch show NAME --trial 3
      hpsearch show NAME --why 3
      hpsearch retry NAME --failed

- `hpsearch doctor space.yaml` checks the machine, and what the space needs of it.
- Try a configuration of your own (it trains next), pause, or change the budget of what is queued. A study
  that a server has finished goes on with more trials, or confirms its winner:

      hpsearch try NAME learning_rate=0.003
      hpsearch pause NAME
      hpsearch steer NAME --trials 80
      hpsearch steer NAME --to run --confirm

## Do not

- Do not delete studies, databases or `runs/`, and do not edit the database. Another name is another study.
- Do not change the space of a study that has begun: its trials would not compare. Change `name:` with it.
- Do not report a value without its evidence, and do not call a tie a win.

## The commands

COMMANDS

Commands that print have `--json`; `hpsearch schema --output COMMAND` prints its JSON Schema.
"""


def agent_docs(context: typer.Context) -> None:
    """Print a page that tells a coding agent how to search a script's hyperparameters with hpsearch.

    Agents look for it in a folder of their own, which has to be there: mkdir -p .claude/skills/hpsearch
    before hpsearch agent-docs > .claude/skills/hpsearch/SKILL.md, say.

    Example: hpsearch agent-docs > SKILL.md
    """
    root: Any = context.find_root().command
    printing.print_document(page(root.commands))


def page(commands: Mapping[str, Any]) -> str:
    """The page, with what the commands, spaces and objectives know of themselves."""
    from ...objectives.catalog import BUILT_IN, describe_objective
    from ...spaces.samplers import SAMPLERS
    from ...spaces.stopping import METHODS
    from ..operations.export import Form
    from ..operations.winner import STATUSES

    told = {
        "EVIDENCE": "\n".join(f"   - {status}: {meaning}" for status, meaning in STATUSES.items()),
        "FORMS": ", ".join(get_args(Form)),
        "OBJECTIVES": "\n".join(f"- `{name}`: {describe_objective(name).summary}" for name in BUILT_IN),
        "SAMPLERS": ", ".join(SAMPLERS),
        "STOPPING": ", ".join(METHODS),
        "COMMANDS": "\n".join(_lines(commands)),
    }
    text = PAGE
    for name, content in told.items():
        text = text.replace(name, content, 1)
    return text


def _lines(commands: Mapping[str, Any]) -> Iterator[str]:
    """What each command does, in a line."""
    for name, command in commands.items():
        if name not in NOT_FOR_AGENTS:
            yield f"- `hpsearch {name}`: {inspect.cleandoc(command.callback.__doc__ or '').splitlines()[0]}"
