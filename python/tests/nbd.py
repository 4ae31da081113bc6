"""A server of a disk in memory: an NBD export that threads of this program serve."""

import socket
import struct
import threading

OPTION_REPLY = 0x3E889045565A9
GO, ACK, INFO, UNSUPPORTED = 7, 1, 3, (1 << 31) + 1
READ, WRITE, DISCONNECT, FLUSH = range(4)


class Server:
    """Serves a disk at an address until the program ends, and counts requests. Reads wait while the gate is shut."""

    def __init__(self, path, content):
        self.content = bytearray(content)
        self.address = f"nbd+unix:///?socket={path}"
        self.requests = self.reads = 0
        self.gate = threading.Event()
        self.gate.set()
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def _accept(self, listener):
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection, connection.makefile("rb") as requests:

            def read(layout):
                return struct.unpack(layout, requests.read(struct.calcsize(layout)))

            # Fixed newstyle, without zeroes.
            connection.sendall(b"NBDMAGICIHAVEOPT" + struct.pack(">H", 3))
            read(">I")
            option = None
            while option != GO:
                _, option, length = read(">8sII")
                requests.read(length)
                answer = UNSUPPORTED
                if option == GO:
                    # Its size; it can be flushed, by many connections.
                    export = struct.pack(">HQH", 0, len(self.content), 1 | 4 | 256)
                    head = struct.pack(">QIII", OPTION_REPLY, option, INFO, len(export))
                    connection.sendall(head + export)
                    answer = ACK
                connection.sendall(struct.pack(">QIII", OPTION_REPLY, option, answer, 0))
            while True:
                _, _, kind, cookie, offset, length = read(">IHHQQI")
                if kind == DISCONNECT:
                    return
                self.requests += 1
                data = b""
                if kind == READ:
                    self.reads += 1
                    self.gate.wait()
                    data = self.content[offset : offset + length]
                elif kind == WRITE:
                    self.content[offset : offset + length] = requests.read(length)
                connection.sendall(struct.pack(">IIQ", 0x67446698, 0, cookie) + data)
