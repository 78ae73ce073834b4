"""Figures of the paper on cross-family speculative decoding for Polish, as its tables print them.

Keys are data set, drafter; acceptance in percent, speed in tokens per second.
"""

from spectool.lab.cost_model import CostModel

MODEL = CostModel(0.071, 0.19)  # section 6.2
R_BY_SIZE = 0.8 / 11.32  # GB, section 6.1
CONDITIONS = ("none", "naive", "context")
DATA = ("wikipedia", "alpaca", "synthetic")

# Table 2: k = 2; acceptance by condition.
ACCEPTANCE = {
    ("wikipedia", "bielik"): (28.5, 19.1, 31.1),
    ("alpaca", "bielik"): (12.5, 11.9, 23.9),
    ("synthetic", "bielik"): (11.8, 16.7, 22.2),
    ("wikipedia", "llama"): (26.7, 8.9, 42.0),
    ("alpaca", "llama"): (12.1, 4.2, 36.0),
    ("synthetic", "llama"): (10.6, 3.1, 36.5),
    ("wikipedia", "qwen"): (30.3, 10.5, 44.6),
    ("alpaca", "qwen"): (13.4, 6.4, 41.0),
    ("synthetic", "qwen"): (12.2, 4.9, 42.7),
}
# Table 3: k = 2; tokens per second and speed-up by condition, and of plain decoding.
BASELINE = {"wikipedia": 14.83, "alpaca": 14.70, "synthetic": 14.72}
SPEED = {
    ("wikipedia", "bielik"): ((13.72, 0.93), (10.32, 0.70), (12.85, 0.87)),
    ("alpaca", "bielik"): ((10.80, 0.74), (9.69, 0.66), (11.92, 0.81)),
    ("synthetic", "bielik"): ((10.68, 0.73), (9.72, 0.66), (11.02, 0.75)),
    ("wikipedia", "llama"): ((14.03, 0.95), (8.96, 0.60), (15.67, 1.06)),
    ("alpaca", "llama"): ((11.24, 0.77), (8.82, 0.60), (14.22, 0.97)),
    ("synthetic", "llama"): ((11.02, 0.75), (8.77, 0.60), (14.39, 0.98)),
    ("wikipedia", "qwen"): ((14.17, 0.96), (8.87, 0.60), (15.68, 1.06)),
    ("alpaca", "qwen"): ((10.96, 0.75), (8.54, 0.58), (14.44, 0.98)),
    ("synthetic", "qwen"): ((10.79, 0.73), (8.47, 0.58), (14.76, 1.00)),
}
# Table 4: context-aware translation; acceptance and speed-up by k.
BY_LENGTH = {
    ("wikipedia", "bielik"): {2: (31.1, 0.87), 4: (38.5, 0.59)},
    ("alpaca", "bielik"): {2: (23.9, 0.81), 4: (29.5, 0.51)},
    ("synthetic", "bielik"): {2: (22.2, 0.75), 4: (29.1, 0.46)},
    ("wikipedia", "llama"): {2: (42.0, 1.06), 4: (49.7, 0.66)},
    ("alpaca", "llama"): {2: (36.0, 0.97), 4: (43.7, 0.59)},
    ("synthetic", "llama"): {2: (36.5, 0.98), 4: (44.5, 0.61)},
    ("wikipedia", "qwen"): {2: (44.6, 1.06), 4: (53.8, 0.70)},
    ("alpaca", "qwen"): {2: (41.0, 0.98), 4: (49.7, 0.59)},
    ("synthetic", "qwen"): {2: (42.7, 1.00), 4: (51.6, 0.61)},
}
# Table 5: break-even at k = 2 and 4.
BREAK_EVEN = {
    ("wikipedia", "bielik"): (44.0, 90.1),
    ("wikipedia", "llama"): (38.3, 81.2),
    ("wikipedia", "qwen"): (40.8, 77.7),
    ("alpaca", "bielik"): (40.2, 89.9),
    ("alpaca", "llama"): (38.1, 82.0),
    ("alpaca", "qwen"): (42.2, 81.3),
    ("synthetic", "bielik"): (52.8, 139.4),
    ("synthetic", "llama"): (38.0, 85.2),
    ("synthetic", "qwen"): (42.5, 92.3),
}
# Tables 8 to 10: mean speed-up in the buckets of acceptance, by k; the middles of the inner ones are 35, 45, 55, 65.
BUCKETS = {
    ("wikipedia", "bielik"): {2: (0.78, 0.88, 1.03, 1.12, None, None), 4: (0.48, 0.54, 0.61, 0.71, 0.93, None)},
    ("wikipedia", "llama"): {2: (0.79, 0.92, 1.04, 1.23, 1.59, None), 4: (0.43, 0.50, 0.57, 0.67, 0.82, 1.10)},
    ("wikipedia", "qwen"): {2: (0.73, 0.89, 1.03, 1.20, 1.43, None), 4: (0.34, 0.48, 0.59, 0.66, 0.81, 1.08)},
    ("synthetic", "bielik"): {2: (0.74, 0.85, None, 1.21, None, None), 4: (0.43, 0.47, 0.51, None, 0.81, None)},
    ("synthetic", "llama"): {2: (0.83, 0.94, 1.08, 1.32, None, None), 4: (0.46, 0.51, 0.61, 0.69, 0.82, 1.06)},
    ("synthetic", "qwen"): {2: (0.80, 0.90, 1.01, 1.18, None, None), 4: (0.46, 0.51, 0.54, 0.64, 0.72, 1.06)},
    ("alpaca", "bielik"): {2: (0.77, 0.88, 1.01, 1.29, None, None), 4: (0.47, 0.51, 0.57, 0.73, 1.10, None)},
    ("alpaca", "llama"): {2: (0.83, 0.93, 1.04, 1.34, None, None), 4: (0.44, 0.51, 0.58, 0.66, 0.92, None)},
    ("alpaca", "qwen"): {2: (0.79, 0.91, 1.01, 1.11, 1.46, None), 4: (0.43, 0.45, 0.51, 0.59, 0.81, 1.01)},
}
# Table 7: break-even of the machine in percent, measured and by the formula.
MEASURED_BREAK_EVEN = {2: 40, 4: 77}
FORMULA_BREAK_EVEN = {2: 44, 4: 81}
# Table 11: k = 6 on alpaca: acceptance, tokens per second, speed-up, break-even in percent.
BASELINE_AT_6 = 14.38
AT_6 = {"bielik": (20.6, 3.98, 0.28, 297), "llama": (41.7, 5.01, 0.35, 147), "qwen": (45.0, 5.81, 0.40, 120)}
# Table 12: watts, tokens per second, joules for a token.
ENERGY = {
    "M2 Pro (chip)": (30, 15, 2.0),
    "M2 Pro (system)": (40, 15, 2.7),
    "L4": (72, 22, 3.3),
    "A100 PCIe 40GB": (250, 110, 2.3),
    "RTX 4090": (450, 80, 5.6),
    "RTX 4090 (sys.)": (600, 80, 7.5),
}
