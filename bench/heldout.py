#!/usr/bin/env python3
"""Write bench/heldout.jsonl: dialogues that the demo model was not trained on.

Training left out a twelfth of the tasks' phrasings, drawn with a fixed seed
(scripts/demo-model/train_demo.py, draw_held_out). Of those, 200 are drawn here,
their slots filled with random values, one to a program's task at most, in the
form that the chat template renders: what is given, and the text to be scored.

Usage: bench/heldout.py >bench/heldout.jsonl
"""

import json
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts" / "demo-model"))

from demo_requests import read_tasks, task_dialogue  # noqa: E402

COUNT = 200


def main():
    tasks = read_tasks()
    phrasings = [(task["answer"], ask) for task in tasks for ask in task["ask"]]
    held_out = random.Random(2).sample(phrasings, len(phrasings) // 12)
    by_answer = {}
    for task in tasks:
        by_answer.setdefault(task["answer"], task)
    rng, seen = random.Random(11), set()
    rng.shuffle(held_out)
    for answer, phrasing in held_out:
        if answer in seen or len(seen) == COUNT:
            continue
        seen.add(answer)
        request, reply = task_dialogue(rng, by_answer[answer], phrasing)
        given = (
            f"<|im_start|>user\n{request}<|im_end|>\n<|im_start|>assistant\n"
            "<think>\n\n</think>\n\n"
        )
        print(json.dumps({"given": given, "text": f"{reply}<|im_end|>"}))


if __name__ == "__main__":
    main()
