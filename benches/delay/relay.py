"""A TCP relay that holds each byte back for a while, in both directions, as a long line does: it limits no throughput.

    relay.py MILLISECONDS_ONE_WAY LISTEN_ADDRESS HOST PORT
"""
import asyncio, sys

delay, listen, host, port = float(sys.argv[1]) / 1000, sys.argv[2], sys.argv[3], int(sys.argv[4])


async def carry(reader, writer):
    loop, queue = asyncio.get_running_loop(), asyncio.Queue()

    async def send():
        while True:
            due, data = await queue.get()
            await asyncio.sleep(due - loop.time())
            if not data:
                return writer.close()
            writer.write(data)

    sender = asyncio.create_task(send())
    try:
        while data := await reader.read(65536):
            queue.put_nowait((loop.time() + delay, data))
    except ConnectionError:
        pass
    queue.put_nowait((loop.time() + delay, b""))
    await sender


async def accept(reader, writer):
    # The way back of the connection itself: TCP's own handshake with the relay takes no time, the one behind it would.
    await asyncio.sleep(2 * delay)
    back, out = await asyncio.open_connection(host, port)
    await asyncio.gather(carry(reader, out), carry(back, writer), return_exceptions=True)


async def main():
    async with await asyncio.start_server(accept, listen, port) as server:
        print("ready", flush=True)
        await server.serve_forever()


asyncio.run(main())
