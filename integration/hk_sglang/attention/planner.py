"""Plans each batch of a server once, before its layers run: prefill, decode, decode in graphs."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

from sglang.srt.model_executor.runner_utils.capture_mode import get_is_capture_mode

from hk_backend.config import get_config
from hk_backend.engine import loggers
from hk_backend.engine.attention import DECODE, ROUTE, survive
from hk_backend.engine.batch_plan import BatchPlan
from hk_backend.engine.decode_rows import DecodeRows
from hk_backend.routing.routes import routes
from hk_sglang.attention.batch import PlannedBatch, plan_forward_batch
from hk_sglang.attention.decode import DecodeBatches
from hk_sglang.attention.drafts import NOT_A_STEP, DraftStep, query_tokens, refuse_decode
from hk_sglang.attention.evidence import Evidence
from hk_sglang.attention.layers import ServedLayers
from hk_sglang.attention.parent_rows import parent_rows

logger = loggers.of("sglang", "attention")

CAPTURE = BatchPlan("graph capture", dummy=True)


class Planner:
    """Plans of the batches of one backend.

    Args:
        backend: the parent.
        layers: the layers of its model.
        evidence: decides who computes prefill; None: HK does wherever it can.
        reads_back: see `plan_batch`.

    Attributes:
        decode: the decode rows of all layers; None: the parent computes them.
    """

    def __init__(
        self, backend: Any, layers: ServedLayers, evidence: Evidence | None, reads_back: bool
    ) -> None:
        self._backend, self._layers, self._evidence = backend, layers, evidence
        self._reads_back = reads_back
        self._pool = backend.token_to_kv_pool
        self._req_to_token = backend.req_to_token_pool.req_to_token
        self._step = NOT_A_STEP
        self._decode_batches = DecodeBatches(self._pool, self._req_to_token)
        self.decode: DecodeRows | None = None

    def beside(self, backend: Any, step: DraftStep, first: Planner | None) -> Planner:
        """A planner for another backend of the same model and pool.

        Args:
            step: the step of a draft model that the backend serves.
            first: the planner of the first step; None: this is the first, or no step.
        """
        found = copy(self)
        found._backend, found._step = backend, step
        theirs = None if first is None else first._decode_batches
        found._decode_batches = DecodeBatches(self._pool, self._req_to_token, step, theirs)
        return found

    def allocate_graphs(self, requests: int, tokens: int) -> None:
        """Allocates memory for graphs of up to `requests` decode rows, with `tokens` in all."""
        if self.decode is not None:
            self._decode_batches.allocate(requests, tokens // requests)

    def refill(self, batch: Any) -> None:
        """Writes the rows of a batch, whose graph is replayed next, to the memory of graphs.

        Raises:
            Exception: they could not be written. The graph must not be replayed with other rows.
        """
        if not decodes(batch) or not self._decode_batches.is_captured(batch.batch_size):
            return
        try:
            self._decode_batches.fill(batch)
        except Exception:
            logger.exception("hk_backend: rows of a captured decode batch cannot be written")
            raise

    def plan(self, batch: Any) -> PlannedBatch | None:
        """Plans a batch; None if HK has nothing to do with it."""
        if get_is_capture_mode():
            return self._plan_capture(batch) or PlannedBatch(batch, CAPTURE)
        ours = decodes(batch)
        try:
            return self._plan_decode(batch) if ours else self._plan_prefill(batch)
        except Exception as error:
            if ours:
                survive(logger, error, DECODE)
                return None
            return PlannedBatch(batch, BatchPlan(survive(logger, error)))

    def rehearsed(self, batch: Any) -> PlannedBatch | None:
        """Plans a contest's batch, which HK computes in any case."""
        return self._decode_batches.eager(batch) if decodes(batch) else self.plan(batch)

    def _plan_prefill(self, batch: Any) -> PlannedBatch | None:
        serves = self._layers.serves()
        planned = plan_forward_batch(
            batch,
            self._pool,
            self._req_to_token,
            routes.verdict(ROUTE).why,
            cache_refusal=self._layers.cache_refusal(),
            why_slower=self._evidence.why_slower if self._evidence else None,
            reads_back=self._reads_back,
            serves=serves,
            why_not_decode=None if self.decode is None else self.decode.why_not,
        )
        if planned is None or planned.plan.others is None or not serves:
            return planned
        if planned.plan.decode is not None:
            return planned
        parent = type(self._backend).__base__
        rows = parent_rows(parent, self._backend, batch, planned.plan.others)
        return replace(planned, plan=replace(planned.plan, parent=rows))

    def _plan_decode(self, batch: Any) -> PlannedBatch | None:
        """Plans a batch of decode rows; None if the parent computes it, and nothing is counted."""
        if self.decode is None:
            return None
        refusal = refuse_decode(batch, self._step)
        if refusal and batch.spec_info is None:
            return None
        if why := refusal or self.decode.why_not(batch.batch_size, query_tokens(batch)):
            verifies = batch.forward_mode.is_target_verify()
            tokens = len(batch.input_ids) if verifies else batch.batch_size * query_tokens(batch)
            return PlannedBatch(batch, BatchPlan(left_decode=why, decode_tokens=tokens), tokens)
        return self._decode_batches.eager(batch)

    def _plan_capture(self, batch: Any) -> PlannedBatch | None:
        """Plans a batch of decode rows that is captured; None if the graph is the parent's."""
        if self.decode is None or not decodes(batch) or refuse_decode(batch, self._step):
            return None
        tokens = query_tokens(batch)
        try:
            may_capture = self._decode_batches.may_capture(tokens)
            if not may_capture or self.decode.why_not(batch.batch_size, tokens):
                return None
            return self._decode_batches.captured(batch)
        except Exception as error:
            survive(logger, error, DECODE)
            return None


def decodes(batch: Any) -> bool:
    """Whether the rows of a batch belong to the route of decode, if there is one.

    Rows of several tokens are those of prefill's route, which leaves them, if decode is no route.
    """
    mode = batch.forward_mode
    if mode.is_target_verify() or mode.is_draft_extend_v2():
        return DECODE in get_config().backend
    return bool(mode.is_decode())
