"""An array with one task for each rate: cloudml run array_rates.py --array 0-3%2"""

import os

index = int(os.environ["CLOUDML_ARRAY_INDEX"])
rate = [0.5, 0.3, 0.1, 0.01][index]
weight = 0.0
for _ in range(100):
    weight -= rate * 2 * (weight - 3.0)
print(f"task {index} of {os.environ['CLOUDML_ARRAY_COUNT']} found {weight:.2f} at rate {rate}")
