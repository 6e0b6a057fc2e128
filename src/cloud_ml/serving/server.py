"""One process of the model server: models in a table, one listener for every protocol."""

import asyncio
import logging
import signal
import ssl
from collections.abc import Callable, Coroutine

from cloud_ml.net.budget import NO_ROOM, Budget
from cloud_ml.net.http1.clock import Clock
from cloud_ml.net.http1.connection import Http1Connection
from cloud_ml.net.http1.cors import Cors
from cloud_ml.net.http1.heads import Heads
from cloud_ml.net.http1.limits import Limits as Http1Limits
from cloud_ml.net.http2 import frames
from cloud_ml.net.http2.connection import Http2Connection
from cloud_ml.net.http2.http_requests import HttpOverHttp2
from cloud_ml.net.http2.stream import Limits
from cloud_ml.net.listening import Alive, Connection, ProtocolSniffer
from cloud_ml.net.loop_iteration import LoopIteration
from cloud_ml.serving.batching import BatchContext
from cloud_ml.serving.call_metrics import Refusals
from cloud_ml.serving.errors import TooLarge
from cloud_ml.serving.grpc.calls import status_block
from cloud_ml.serving.grpc.methods import all_methods
from cloud_ml.serving.grpc.service import GrpcService
from cloud_ml.serving.oip.routes import OpenInferenceRoutes
from cloud_ml.serving.rest.invocations import InvocationsDoor
from cloud_ml.serving.rest.metrics import MetricsDoor
from cloud_ml.serving.rest.routes import RestRoutes
from cloud_ml.serving.rest.service import HttpService
from cloud_ml.serving.settings import Settings
from cloud_ml.serving.table import ModelTable
from cloud_ml.serving.tls import tls_context
from cloud_ml.serving.versions.life import Life
from cloud_ml.serving.versions.version_manager import VersionManager
from cloud_ml.serving.worker_threads import WorkerThreads

log = logging.getLogger(__name__)


class ModelServer:
    """Serves what the settings say, until it is told to leave."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._alive = Alive()
        self._bodies = Budget(settings.request_memory_bytes)
        self.table = ModelTable()

    async def run(self) -> None:
        """Load, listen, serve; on SIGTERM and SIGINT answer what is under way and end."""
        settings, loop, leave = self._settings, asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, leave.set)
        tls = tls_context(settings.tls_file) if settings.tls_file is not None else None
        bounds = settings.connections
        iteration, clock = LoopIteration(loop, bounds.turn_units), Clock(loop)
        with WorkerThreads(settings.threads) as aside:
            life = Life(settings, self.table, BatchContext(loop, iteration, aside, settings.policy))
            # Before it listens: who can connect finds models that answer, or the reason why not.
            await self._unless(leave, life.start())
            methods = all_methods(
                self.table, life.manager,
                control=settings.allow_model_control, message_bytes=settings.max_message_bytes,
            )  # fmt: skip
            http = self._http_service(methods.refusals, life.manager)
            http_limits = Http1Limits(
                body_bytes=settings.max_message_bytes,
                answer_s=settings.rest_timeout_s,
                budget=self._bodies,
                head_bytes=bounds.head_bytes,
                dropped_body_bytes=bounds.dropped_body_bytes,
                head_s=bounds.http1_head_s,
                body_s=bounds.http1_body_s,
                idle_s=bounds.http1_idle_s,
                pipelined=bounds.http1_pipelined,
                linger_s=bounds.http1_linger_s,
            )
            over_http2 = HttpOverHttp2(http, http_limits, clock, loop)
            grpc = GrpcService(
                methods.unary, settings.max_message_bytes, loop, methods.streams,
                refusals=methods.refusals, http=over_http2, unread_bytes=bounds.stream_unread_bytes,
            )  # fmt: skip
            heads = Heads(http.understand)
            limits = Limits(
                settings.max_message_bytes,
                self._too_large,
                budget=self._bodies,
                no_room=self._no_room,
                head_bytes=bounds.head_bytes,
                empty_frames=bounds.empty_frames,
                kept_head_bytes=bounds.kept_head_bytes,
                streams=bounds.http2_streams,
                window=bounds.http2_window_bytes,
                head_s=bounds.http2_head_s,
                body_s=bounds.http2_body_s,
                unread_s=bounds.http2_unread_s,
                idle_s=bounds.http2_idle_s,
            )

            def http1() -> Connection:
                return Http1Connection(http, heads, http_limits, iteration, clock)

            def http2() -> Connection:
                return Http2Connection(grpc, limits, iteration)

            def sniffer() -> ProtocolSniffer:
                return ProtocolSniffer(http1, http2, self._alive, greeting_s=bounds.greeting_s)

            listeners = await self._listen(sniffer, tls)
            clock.every_second(self._alive.tick)
            clock.start()
            await leave.wait()
            for listener in listeners:
                listener.close()
            await self._alive.drain(settings.drain_s)
            clock.stop()

    async def _listen(
        self, greet: Callable[[], asyncio.Protocol], tls: ssl.SSLContext | None
    ) -> list[asyncio.AbstractServer]:
        """Take connections from now on."""
        settings, loop = self._settings, asyncio.get_running_loop()
        if settings.unix_socket is not None:
            settings.unix_socket.unlink(missing_ok=True)  # one of a predecessor
            listener = await loop.create_unix_server(greet, str(settings.unix_socket))
            log.info("listening on %s", settings.unix_socket)
            return [listener]
        made: list[asyncio.AbstractServer] = []
        for port in (settings.port, settings.rest_port):
            if port is not None:
                bound = await loop.create_server(greet, settings.host, port, ssl=tls)
                log.info("listening on %s:%s", *bound.sockets[0].getsockname()[:2])
                made.append(bound)
        return made

    def _http_service(self, refusals: Refusals, manager: VersionManager) -> HttpService:
        """Answers requests of HTTP, whichever version."""
        doors = (
            RestRoutes(self.table, manager),
            OpenInferenceRoutes(self.table, manager, control=self._settings.allow_model_control),
            InvocationsDoor(self.table, manager),
            MetricsDoor(self.table, refusals, self._alive),
        )
        origins = self._settings.cors_origins
        return HttpService(doors, refusals, Cors(origins) if origins else None)

    @staticmethod
    async def _unless(leave: asyncio.Event, work: Coroutine[None, None, None]) -> None:
        """Wait for work, or until the server is told to leave."""
        tasks = [asyncio.ensure_future(work), asyncio.ensure_future(leave.wait())]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task in done:
                task.result()
            else:
                task.cancel()

    @staticmethod
    def _no_room(stream: int) -> tuple[bytes, ...]:
        return (
            # 0x5: END_STREAM and END_HEADERS (RFC 9113, section 6.2).
            frames.frame(frames.HEADERS, 0x5, stream, status_block(TooLarge.grpc, NO_ROOM, 503)),
        )

    def _too_large(self, stream: int) -> tuple[bytes, ...]:
        error = TooLarge(f"a message of more than {self._settings.max_message_bytes} bytes")
        return (
            frames.frame(
                frames.HEADERS, 0x5, stream, status_block(error.grpc, error.message, error.http)
            ),
        )
