"""The dataset of verl's `verl.trainer.sft_trainer` whose tokens are those that reinforcement learning will see.

verl's own `MultiTurnSFTDataset` renders every message by itself, which gives other ids than a rollout for many
templates. This one builds ids and mask with `ChatTokens`, exactly as the agent loop does. A reply that was sampled
token by token brings its ids, and they stay as they were sampled: encoded again, its text may well have others.
Everything is rendered when the dataset is made, so that a row that can't work stops the run before training and not in
the middle of an epoch.

Selected by `data.custom_cls.path=pkg://verl_ext.sft_dataset data.custom_cls.name=SftDataset`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow
import pyarrow.parquet
import torch
from torch.utils.data import Dataset

from agentgym_rl.errors import AgentGymError, ConfigurationError, DataError
from agentgym_rl.messages import Message
from verl_ext.agent_loop.chat_tokens import ChatTokens, RenderedConversation


class SftDataset(Dataset):
    """Conversations of parquet files with a column of chat messages.

    An item has verl's keys `input_ids`, `position_ids` and `loss_mask`, each of shape [tokens of the conversation].

    Args:
        parquet_files: one path or several. A message is `role`, `content` and, if only some replies are to be trained,
            `loss`; without it every reply is. A reply may have `token_ids`, which must be this tokenizer's for its
            content.
        tokenizer: the policy's.
        config: verl's `data` section. Used: `messages_key`, `max_length` (tokens), `apply_chat_template_kwargs`.
        processor: of multimodal models, which are not supported.
        max_samples: the first so many conversations; -1: all.

    Raises:
        ConfigurationError: an option asks for padding, truncation or images.
        DataError: a row is no conversation, is too long, or has the ids of another tokenizer; names file and row.
    """

    def __init__(
        self,
        parquet_files: str | Sequence[str],
        tokenizer: Any,
        config: Mapping[str, Any],
        processor: Any = None,
        max_samples: int = -1,
    ):
        _require_supported(config, processor)
        chat = ChatTokens(tokenizer, config.get("apply_chat_template_kwargs"))
        column, max_tokens = config.get("messages_key", "messages"), config.get("max_length", 1024)
        files = [parquet_files] if isinstance(parquet_files, str) else list(parquet_files)
        rows = [(f"row {index} of {file}", row) for file in files for index, row in enumerate(_read(file, column))]
        kept = rows if max_samples < 0 else rows[:max_samples]
        self._items = [_item(chat, row, max_tokens, where) for where, row in kept]

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        input_ids, loss_mask = self._items[index]
        return {"input_ids": input_ids, "position_ids": torch.arange(len(input_ids)), "loss_mask": loss_mask}


def _require_supported(config: Mapping[str, Any], processor: Any) -> None:
    for key, only in (("pad_mode", "no_padding"), ("truncation", "error")):
        if config.get(key, only) != only:
            raise ConfigurationError(f"data.{key} must be {only!r} for this dataset; given: {config.get(key)!r}")
    if processor is not None:
        raise ConfigurationError(f"this dataset is for text; the model brings a {type(processor).__name__}")


def _read(file: str, column: str) -> list[Any]:
    try:
        table = pyarrow.parquet.read_table(file)
    except FileNotFoundError as error:
        raise DataError(f"there is no file {file}") from error
    except pyarrow.ArrowInvalid as error:
        raise DataError(f"{file} is no parquet file: {error}") from error
    if column not in table.column_names:
        raise DataError(f"{file} has no column {column!r}; it has: {', '.join(table.column_names)}")
    return table.column(column).to_pylist()


def _item(chat: ChatTokens, row: Any, max_tokens: int, where: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask of one conversation."""
    if not isinstance(row, list):
        raise DataError(f"{where}: a conversation is a list of messages; given: {row!r}")
    try:
        ids, mask = _rendered(chat, [Message.from_chat(message) for message in row], row)
    except AgentGymError as error:
        raise DataError(f"{where}: {error}") from error
    if 1 not in mask:
        raise DataError(f"{where}: no reply is to be trained")
    if len(ids) > max_tokens:
        raise DataError(f"{where}: the conversation has {len(ids)} tokens; data.max_length allows {max_tokens}")
    return torch.tensor(ids), torch.tensor(mask)


def _rendered(chat: ChatTokens, messages: Sequence[Message], row: Sequence[Mapping[str, Any]]) -> RenderedConversation:
    """Ids and mask, with the sampled ids of those replies that have them."""
    trained = _trained(row)
    encoded = chat.render(messages, trained)  # refuses what is no conversation
    replies = [index for index, message in enumerate(messages) if message.role == "assistant"]
    if not any(row[index].get("token_ids") for index in replies):
        return encoded
    ids = chat.opening(messages[: replies[0]])
    mask = [0] * len(ids)
    for index, following in zip(replies, [*replies[1:], None], strict=True):
        reply = _reply_ids(chat, messages[index].content, row[index].get("token_ids"))
        ids += reply
        mask += [int(trained[index])] * len(reply)
        if following is not None:
            between = chat.continuation(messages[index + 1 : following], reply)
            ids += between
            mask += [0] * len(between)
    return RenderedConversation(ids, mask)


def _reply_ids(chat: ChatTokens, content: str, sampled: Sequence[int] | None) -> list[int]:
    if not sampled:
        return chat.encode_reply(content)
    decoded = chat.reply_text(sampled)
    if decoded != content:
        raise DataError(
            f"a reply's token_ids are those of another tokenizer: here they read {decoded!r}, and its content is "
            f"{content!r}"
        )
    return list(sampled)


def _trained(row: Sequence[Mapping[str, Any]]) -> list[bool]:
    """Per message, whether it is trained if it is a reply; parquet gives None where a flag is not set."""
    return [message.get("loss") is not False for message in row]
