"""The web application of a blind test: the page at /, ballots, votes and the tally.

Nothing that it answers says which system wrote a text; only the export of the command line does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel, Field

from noise2text.core.errors import Problem
from noise2text.serving.body_limit import BodyLimit
from noise2text.serving.votes import Ballot, BlindTest, VoteCounts

__all__ = ["Vote", "build_vote_app"]

PARTS = Path(__file__).with_name("page")
MAX_BODY = 4096  # bytes of a vote
Voter = Annotated[str, Query(min_length=1, max_length=64)]


class Vote(BaseModel):
    """A voter's answer to a ballot."""

    voter: str = Field(min_length=1, max_length=64)
    number: int
    preferred: str = Field(description="first, second or equal")


def build_vote_app(test: BlindTest) -> FastAPI:
    """The application of this test."""
    app = FastAPI(title="noise2text vote", docs_url=None, redoc_url=None)

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    def show_page() -> str:
        page, style, script = (
            (PARTS / name).read_text(encoding="utf-8") for name in ("vote.html", "page.css", "vote.js")
        )
        return page.replace("/* page.css */", style).replace("/* vote.js */", script)

    @app.get("/v1/ballots/{number}")
    def get_ballot(number: int, voter: Voter) -> Ballot:
        return test.ballot(voter, number)

    @app.post("/v1/votes")
    def post_vote(vote: Vote) -> dict[str, str]:
        test.vote(vote.voter, vote.number, vote.preferred)
        return {"status": "ok"}

    @app.get("/v1/tally")
    def get_tally() -> VoteCounts:
        return test.book.tally()

    app.add_middleware(BodyLimit, max_bytes=MAX_BODY)
    app.add_exception_handler(Problem, _answer_problem)
    return app


def _answer_problem(request: Request, error: Any) -> JSONResponse:
    return JSONResponse({"error": str(error)}, 422)
