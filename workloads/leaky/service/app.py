"""The HTTP interface: watches, health, diagnosis. `app` is what uvicorn loads; one worker.

LEAKY_LEAK says which mistake it has: none, python or native.
"""

import os
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Request, status

from answers import routes

from .watches import BadPattern, Leak, Result, Watch, Watches

app = FastAPI(title="Watches")
app.include_router(routes.router)
app.state.watches = Watches(Leak(os.environ.get("LEAKY_LEAK", Leak.NONE)))


def watches(request: Request) -> Watches:
    found: Watches = request.app.state.watches
    return found


All = Annotated[Watches, Depends(watches)]


@app.get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


@app.post("/v1/watches", status_code=status.HTTP_201_CREATED)
async def add(watch: Watch, all_of_them: All) -> Result:
    try:
        return all_of_them.run(watch)
    except BadPattern as error:
        raise HTTPException(status.HTTP_422_UNPROCESSABLE_CONTENT, "no POSIX regular expression") from error


@app.get("/v1/watches/{watch_id}")
async def get(watch_id: str, all_of_them: All) -> Result:
    found = all_of_them.result(watch_id)
    if found is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, "no such result is kept")
    return found
