"""A middleware that counts and logs answers, and turns bugs into an answer without a stack trace.

A line of the log has the method, the route, the status and the time: no text of a user, no query.
"""

from __future__ import annotations

import logging
import time

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from noise2text.serving.prometheus import ServiceMetrics
from noise2text.serving.request_batching import describe_error

__all__ = ["AnswerLog"]

logger = logging.getLogger("noise2text.serving")


class AnswerLog:
    """Counts and logs every answer of an app."""

    def __init__(self, app: ASGIApp, *, metrics: ServiceMetrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer by the app; an error that it does not handle is a 500."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, statuses = time.perf_counter(), []

        async def send_and_note(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            await send(message)

        try:
            await self.app(scope, receive, send_and_note)
        except Exception as error:
            logger.error("an answer failed: %s", describe_error(error))
            if not statuses:
                sentence = "The service failed; its log says why."
                await JSONResponse({"error": sentence}, 500)(scope, receive, send_and_note)
        seconds, status = time.perf_counter() - start, statuses[0] if statuses else 499
        route = getattr(scope.get("route"), "path", "unknown")
        self.metrics.observe_answer(route, status, seconds)
        logger.info("%s %s %d %.0f ms", scope["method"], route, status, seconds * 1000)
