"""Runs in a host that is a machine of its own: carries out what `lab exec` asks for, over a port that is no network.

The port is opened when the host can be logged in to; by that the lab knows that it is up. A request is a line
`[NONCE, [COMMAND, ARGUMENT..]]`; the answers are lines `[NONCE, 1 or 2, OUTPUT]` and, last, `[NONCE, 0, EXIT CODE]`.
"""
import base64, json, os, select, signal, subprocess, time

ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "USER": "root",
               "LOGNAME": "root", "SHELL": "/bin/bash", "LC_ALL": "C.UTF-8"}


def ready():
    with open("/proc/net/tcp") as sockets, open("/proc/net/route") as routes:
        return ":0016 00000000:0000 0A" in sockets.read() and "eth0" in routes.read() and not os.path.lexists("/run/nologin")


def answer(port, nonce, command):
    def say(number, value):
        rest = json.dumps([nonce, number, value]).encode() + b"\n"
        while rest:
            rest = rest[os.write(port, rest):]

    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/",
                                   env=ENVIRONMENT, start_new_session=True)
    except OSError as error:
        say(2, base64.b64encode(f"lab: {command[0]}: {error.strerror}\n".encode()).decode())
        return say(0, 127)
    outputs = {process.stdout.fileno(): 1, process.stderr.fileno(): 2}
    ended = os.pidfd_open(process.pid)
    poll = select.poll()
    for descriptor in (ended, *outputs):
        poll.register(descriptor, select.POLLIN)
    poll.register(port, 0)  # only whether somebody listens
    while True:
        ready = [descriptor for descriptor, _ in poll.poll()]
        if port in ready:
            os.killpg(process.pid, signal.SIGKILL)
            poll.unregister(port)
        read = [descriptor for descriptor in ready if descriptor in outputs]
        for descriptor in read:
            data = os.read(descriptor, 30000)
            if data:
                say(outputs[descriptor], base64.b64encode(data).decode())
            else:
                poll.unregister(descriptor)
        # What it left running in the background may keep its outputs open for ever.
        if ended in ready and not read:
            break
    for file in (process.stdout, process.stderr):
        file.close()
    os.close(ended)
    code = process.wait()
    say(0, 128 - code if code < 0 else code)


while not ready():
    time.sleep(0.1)
port, line = os.open("/dev/virtio-ports/lab", os.O_RDWR), b""
while True:
    data = os.read(port, 65536)
    if not data:  # nobody is there
        line = b""
        time.sleep(0.02)
        continue
    *requests, line = (line + data).split(b"\n")
    for request in requests:
        try:
            nonce, command = json.loads(request)
        except ValueError:  # the end of what somebody asked who was killed meanwhile
            continue
        answer(port, nonce, command)
