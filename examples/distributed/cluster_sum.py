"""Any code, by names and ports alone: cloudml run cluster_sum.py --recipe cluster -w 3"""

import os
import socket
import time

from cloud_ml import job

cluster = job.cluster()
workers = cluster.addresses["worker"]
own = cluster.task_index + 1
if cluster.task_index == 0:
    with socket.create_server(("", int(os.environ["CLOUDML_PORT"]))) as server:
        total = own
        for _ in workers[1:]:
            with server.accept()[0] as connection:
                total += int(connection.recv(20))
    print(f"worker 0 of {len(workers)} found {total}")
else:
    host, port = workers[0].split(":")
    while True:
        try:
            connection = socket.create_connection((host, int(port)))
            break
        except ConnectionRefusedError:  # the first worker has not started yet
            time.sleep(0.1)
    with connection:
        connection.sendall(str(own).encode())
