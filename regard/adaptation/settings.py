"""What an adapter's learning may be told; the fields are the flags of `regard adapt`."""

from __future__ import annotations

from pydantic import BaseModel, Field

MB = 1_000_000


class Learning(BaseModel, extra="forbid", frozen=True):
    """How an adapter is learnt."""

    rank: int = Field(0, ge=0, le=512, description="rank of each matrix's change; 0: the largest that --max-mb allows")
    max_mb: float = Field(2.0, gt=0, le=60, description="megabytes (10^6 bytes) that the adapter may have")
    layers: tuple[str, ...] = Field(
        (), description="only parameters with this in their names, such as decoder or feedforward; may be repeated"
    )
    learning_rate: float = Field(0.004, gt=0, le=1, description="highest learning rate of AdamW")
    epochs: int = Field(20, ge=1, description="most times that all pairs are read")
    minutes: float = Field(3.0, gt=0, description="most minutes of learning; the learning rate falls to 0 by then")
    batch_tokens: int = Field(512, ge=16, description="most tokens of a side in a batch, replay aside")
    replay_share: float = Field(10.0, ge=0, le=100, description="weight of what is replayed, a pair counting 1")
    distil: bool = Field(
        True, description="replay holds the model to its own predictions, not to the replayed translations"
    )
    held_out: int = Field(200, ge=0, description="most pairs, and a tenth of them at most, that are kept to judge by")
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="label smoothing of the loss")
    seed: int = Field(1, description="of all that is drawn")
