"""A child that makes objects on request: one Python expression (or statements) a line in, the id of the result out."""

import ast
import collections
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import shapes

names = {**vars(shapes), "shapes": shapes}
kept = collections.deque(maxlen=64)

print(sys.version_info[0], sys.version_info[1], os.getpid(), flush=True)
for line in sys.stdin:
    source = ast.literal_eval(line)
    try:
        result = eval(source, names)
    except SyntaxError:
        exec(source, names)
        result = None
    kept.append(result)
    print(id(result), flush=True)
