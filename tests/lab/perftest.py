#!/usr/bin/env python3
"""A stand-in for perftest's ib_write_bw: simulated. Both sides really find each other over TCP, as those of perftest do; no RDMA
takes place, and the table is that of a real run, with a warning inside of it and a peak of 0.00.

/run/simulated-perftest says what the host's side comes to: a rate in Gb/s, `lost` (the connection breaks off, as with packets that
vanish), or `device` (it can't be opened). Each call is a line of /run/simulated-perftest.calls."""

import pathlib
import socket
import sys

TABLE = """---------------------------------------------------------------------------------------
 Mtu             : 4096[B]
 Link type       : Ethernet
 GID index       : 4
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
Conflicting CPU frequency values detected: 1500.000000 != 3300.016000. CPU Frequency is not max.
 65536      560845           0.00               {:.2f}                0.186950
---------------------------------------------------------------------------------------
"""


def main() -> int:
    words = sys.argv[1:]
    run = pathlib.Path("/run/simulated-perftest")
    with open(f"{run}.calls", "a") as calls:
        print(*words, file=calls)
    fate = run.read_text().strip() if run.exists() else "98.02"
    if fate == "device":
        print(" Did not detect devices \n If device exists, check if driver is up\n Unable to find the Infiniband/RoCE device", file=sys.stderr)
        return 1
    at = words.index("-p")
    port, address = int(words[at + 1]), words[at + 2 :]
    if not address:
        with socket.create_server(("", port)) as server:
            connection, _ = server.accept()
            with connection:
                connection.sendall(fate.encode() + b"\n")
        return 0
    try:
        with socket.create_connection((address[0], port), timeout=5) as connection:
            other = connection.makefile().readline().strip()
    except OSError:
        print(f"Couldn't connect to {address[0]}:{port}", file=sys.stderr)
        print("Unable to open file descriptor for socket connection Unable to init the socket connection", file=sys.stderr)
        return 1
    if "lost" in (fate, other):
        print(" Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81", file=sys.stderr)
        return 1
    print(TABLE.format(min(float(fate), float(other))), end="")
    return 0


sys.exit(main())
