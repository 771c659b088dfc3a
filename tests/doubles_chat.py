"""Chat templates of four kinds, each with a small tokenizer trained here, and what tests ask about ids and masks."""

from __future__ import annotations

from functools import cache
from itertools import groupby

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from verl_ext.agent_loop.chat_tokens import ChatTokens

CHATML = """\
{%- for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

QWEN25 = (
    """\
{%- if messages[0].role != 'system' %}<|im_start|>system
You are a helpful assistant.<|im_end|>
{% endif %}"""
    + CHATML
)

LLAMA3 = """\
{{- bos_token }}
{%- if messages[0].role == 'system' %}
    {%- set given = messages[0].content | trim %}
    {%- set rest = messages[1:] %}
{%- else %}
    {%- set given = '' %}
    {%- set rest = messages %}
{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\n\nToday Date: 26 Jul 2024\n\n' + given + '<|eot_id|>' }}
{%- for m in rest %}
    {%- set role = 'ipython' if m.role == 'tool' else m.role %}
    {{- '<|start_header_id|>' + role + '<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"""

THINKING = """\
{%- set seen = namespace(last_query=-1) %}
{%- for m in messages %}
    {%- if m.role == 'user' %}{% set seen.last_query = loop.index0 %}{% endif %}
{%- endfor %}
{%- for m in messages %}
    {%- if m.role == 'assistant' %}
        {%- set reasoning = m.content.split('</think>')[0].split('<think>')[-1] if '</think>' in m.content else '' %}
        {%- set answer = m.content.split('</think>')[-1].lstrip('\n') %}
        {{- '<|im_start|>assistant\n' }}
        {%- if loop.index0 > seen.last_query and (loop.last or reasoning) %}
            {{- '<think>\n' + reasoning.strip('\n') + '\n</think>\n\n' }}
        {%- endif %}
        {{- answer + '<|im_end|>\n' }}
    {%- elif m.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
        {{- '\n<tool_response>\n' + m.content + '\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\n' }}{% endif %}
    {%- else %}
        {{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{% endif %}
{%- endif %}"""

TEMPLATES = {"chatml": CHATML, "qwen2.5": QWEN25, "llama3": LLAMA3, "thinking": THINKING}
FAITHFUL = ["chatml", "qwen2.5", "llama3"]
"""Templates that keep what was said as it was said."""

SPECIAL = {
    "llama3": ["<|end_of_text|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
    "chatml": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
}
CORPUS = ["go to the red ball", "you see a green key in front of you", "pick up the box, then open the door"]


def trained_tokenizer(template: str, special: list[str], bos: str | None = None) -> PreTrainedTokenizerFast:
    """A byte-level BPE whose added tokens match the template's; `eos` is the first special token.

    With `bos`, encoding puts it in front by itself, as Llama 3's tokenizer does.
    """
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(CORPUS * 3, trainer)
    backend.add_special_tokens(special)
    backend.add_tokens([AddedToken(text, special=False, normalized=False) for text in ("<think>", "</think>")])
    if bos:
        backend.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, backend.token_to_id(bos))]
        )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=special[0], bos_token=bos)
    tokenizer.chat_template = template
    return tokenizer


@cache
def all_chats() -> dict[str, ChatTokens]:
    """One for each template."""
    made = {}
    for name, template in TEMPLATES.items():
        special = SPECIAL.get(name, SPECIAL["chatml"])
        bos = "<|begin_of_text|>" if name == "llama3" else None
        made[name] = ChatTokens(trained_tokenizer(template, special, bos))
    return made


def tokenizer_of(chat: ChatTokens) -> PreTrainedTokenizerFast:
    return chat._tokenizer


def text_of(chat: ChatTokens, ids: list[int]) -> str:
    return tokenizer_of(chat).decode(ids)


def id_of(chat: ChatTokens, token: str) -> int:
    return tokenizer_of(chat).convert_tokens_to_ids(token)


def runs_of_ones(mask: list[int]) -> list[int]:
    """Length of each run of 1s."""
    return [len(list(run)) for value, run in groupby(mask) if value]
