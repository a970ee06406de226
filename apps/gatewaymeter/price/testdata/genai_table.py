"""Writes a table of what the public package genai-prices answers for a price book.

    pip install genai-prices==0.2.3
    python testdata/genai_table.py ../sample/prices.json > testdata/sample_table.csv
    python testdata/genai_table.py path/to/genai-prices/data.json > testdata/genai_table.csv

The book is loaded from the file, with prices as decimals of their own digits, and the arithmetic is
told to fail rather than to round. Where the package takes a missing price for 0, and in the other cases
in which a request must not be priced, the row has a reason in place of an amount; those reasons are
decided here, from the price set that the package chose.
"""

import csv
import hashlib
import itertools
import json
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal, Inexact, getcontext

from genai_prices import Usage, calc_price
from genai_prices.data_snapshot import DataSnapshot, find_provider_by_id, set_custom_snapshot
from genai_prices.types import (
    StartDateConstraint,
    TieredPrices,
    TimeOfDateConstraint,
    _providers_from_raw,
)

KINDS = ('input', 'output', 'cache_read', 'cache_write')
LATE = datetime(2026, 11, 3, 12, 0, tzinfo=UTC)  # after every start date of the book
PLAIN = (4808, 10, 0, 0)
CACHED = (300_123, 77, 1_024, 40_961)

getcontext().prec = 200
getcontext().traps[Inexact] = True

with open(sys.argv[1], 'rb') as file:
    BOOK = file.read()
PROVIDERS = _providers_from_raw(json.loads(BOOK, parse_float=Decimal, parse_int=int))
SMALL = len(PROVIDERS) < 20
set_custom_snapshot(DataSnapshot(providers=PROVIDERS, from_auto_update=False))

rows = {}


def text(amount):
    plain = format(amount, 'f')
    return plain.rstrip('0').rstrip('.') if '.' in plain else plain


def missing(prices, tokens):
    """The first used kind that the set in force gives no price for."""
    has = {k for k in KINDS if getattr(prices, k + '_mtok') is not None}
    inputs = tokens[0] - sum(n for k, n in zip(KINDS[2:], tokens[2:]) if k in has)
    if inputs and 'input' not in has:
        return 'no_price:input_mtok'
    if tokens[1] and 'output' not in has:
        return 'no_price:output_mtok'
    return None


def judge(provider, model, at, tokens):
    """The ids of the entry that is chosen, and the amount or the reason."""
    usage = Usage(**{k + '_tokens': n for k, n in zip(KINDS, tokens)})
    if find_provider_by_id(PROVIDERS, provider) is None:
        return '', '', 'unknown_provider'
    try:
        snapshot_provider = find_provider_by_id(PROVIDERS, provider)
        found = snapshot_provider.find_model(model.lower(), all_providers=PROVIDERS)
        if found is None:
            return '', '', 'unknown_model'
        owner = next(p.id for p in PROVIDERS if any(m is found for m in p.models))
        prices = found.get_prices(at)
        if not any(v is not None for v in prices.__dict__.values()):
            return owner, found.id, 'empty_price_set'
        if tokens[2] + tokens[3] > tokens[0]:
            return owner, found.id, 'cached_exceeds_input'
        if reason := missing(prices, tokens):
            return owner, found.id, reason
        answer = calc_price(usage, model, provider_id=provider, genai_request_timestamp=at)
    except LookupError:
        return '', '', 'unknown_model'
    assert answer.model is found
    return owner, found.id, text(answer.total_price)


def add(about, provider, model, tokens=PLAIN, at=LATE):
    key = (provider, model, at.isoformat().replace('+00:00', 'Z'), *tokens)
    rows.setdefault(key, (about, *key, *judge(provider, model, at, tokens)))


def names(clause):
    """A name that each text of a clause reaches, in the case of the book and in another."""
    for op, value in vars(clause).items():
        if op in ('or_', 'and_'):
            for part in value:
                yield from names(part)
        elif op == 'equals':
            yield value
            yield value.upper()
        elif op == 'starts_with':
            yield value + '-x'
        elif op == 'ends_with':
            yield 'x-' + value
        elif op == 'contains':
            yield 'us.' + value.upper() + '-v9'


def sets(model):
    return model.prices if isinstance(model.prices, list) else [model]


def tariffs(model):
    for s in sets(model):
        for value in vars(s.prices).values():
            if value is not None:
                yield value


def every_provider():
    for p in PROVIDERS:
        for m in p.models[:: max(1, len(p.models) // 4)]:
            for name in itertools.islice(names(m.match), 9 if SMALL else 2):
                add('match', p.id, name)


def provider_aliases():
    for name, model in [
        (' OpenAI\t', 'gpt-4o'), ('azure-openai', 'GPT-4o-mini'), ('openai.chat', 'o3'), ('Azure', 'gpt-4o'),
        ('azure', 'claude-3-opus-latest'), ('google', 'claude-sonnet-4-5'), ('Google-Vertex', 'gemini-2.5-pro'),
        ('vertex_ai', 'claude-3-5-sonnet@20240620'), ('gemini', 'gemini-2.0-flash'), ('xai', 'grok-4.3'),
        ('XAI', 'grok-4.3-20260501'), ('x-ai', 'x-ai/grok-4.5-20260612'), ('together-ai', 'qwen/qwen1.5-7b'),
        ('together_ai', 'Qwen/Qwen1.5-7B'), ('Mistral-AI', 'mistral-large-latest'), ('mistralai', 'ministral-3b'),
        ('amazon', 'us.anthropic.claude-sonnet-5'), ('AWS.Bedrock', 'global.anthropic.claude-sonnet-5'),
        ('my-anthropic-proxy', 'claude-opus-4-6-20260101'), ('moonshot', 'kimi-k2-0905-preview'),
        ('huggingface/novita', 'deepseek-ai/DeepSeek-V3'), ('novita-huggingface', 'deepseek-ai/deepseek-v3'),
        ('cohere_v2', 'command-r'), ('voyage-ai', 'voyage-3.5'), ('google', 'gemini-3.5-flash-001'),
        ('openrouter', 'google/gemini-3.5-flash-20260519'), ('openrouter', 'google/gemini-3.5-flash-2026051'),
        ('Minimax', 'abab-m2.5-HIGHSPEED'), ('nobody', 'gpt-4o'), ('', 'gpt-4o'), ('openai', 'gpt-17-imagined'),
        ('openai', ''), ('openai', ' gpt-4o'), ('anthropic', 'gpt-4o'), ('azure', 'gemini-2.5-pro'),
    ]:
        add('alias', name, model)


def compact_dates():
    seen = 0
    for p in PROVIDERS:
        for m in p.models:
            for name in names(m.match):
                head, tail = name[:-11], name[-11:]
                if len(tail) == 11 and tail[0] == '-' and tail[1:3] == '20' and tail[5] == tail[8] == '-':
                    add('compact date', p.id, head + '-' + tail[1:].replace('-', ''))
                    seen += 1
    assert SMALL or seen > 10
    for p, name in [('azure', 'GPT-4O-20240806'), ('openai', 'gpt-4o-20241332'), ('openai', 'gpt-4o-20240230'),
                    ('openai', 'gpt-4o20240806'), ('openai', 'gpt-4o-2024-0806')]:
        add('compact date', p, name)


def tiers():
    for p in PROVIDERS:
        for m in p.models:
            starts = sorted({t.start for v in tariffs(m) if isinstance(v, TieredPrices) for t in v.tiers})
            if not starts:
                continue
            name = next(names(m.match))
            early = datetime(2025, 1, 1, tzinfo=UTC)
            for start in starts:
                for n in (start - 1, start, start + 1):
                    add('tier', p.id, name, (n, 10, 0, 0), early)
                    add('tier', p.id, name, (n, 1_000_001, 999, 0), early)
                    add('tier', p.id, name, (n, 3, 1, n - 1), early)


def constraints():
    for p in PROVIDERS:
        for m in p.models:
            name = next(names(m.match))
            for c in [s.constraint for s in sets(m) if isinstance(m.prices, list) and s.constraint]:
                if isinstance(c, StartDateConstraint):
                    edges = [datetime.combine(c.start_date, datetime.min.time(), UTC)]
                else:
                    assert isinstance(c, TimeOfDateConstraint)
                    day = datetime(2026, 2, 28, tzinfo=UTC).date()
                    edges = [datetime.combine(day, t) for t in (c.start_time, c.end_time)]
                    edges.append(datetime(2026, 3, 1, tzinfo=UTC))
                for edge in edges:
                    for d in (-1_000_000, -1, 0, 1, 1_000_000):
                        add('in force', p.id, name, CACHED, edge + timedelta(microseconds=d))


def cached():
    every = [(p.id, next(names(m.match))) for p in PROVIDERS for m in p.models]
    for p, model in every if SMALL else [
        ('openai', 'gpt-4o'), ('openai', 'gpt-4'), ('openai', 'gpt-4o-mini'), ('anthropic', 'claude-sonnet-4-5'),
        ('anthropic', 'claude-3-haiku'), ('anthropic', 'claude-2'), ('google', 'gemini-2.5-pro'),
        ('google', 'gemini-2.0-flash'), ('openrouter', 'google/gemini-2.5-flash-lite'), ('x-ai', 'grok-4.5'),
        ('openrouter', 'google/gemini-3.5-flash'), ('deepseek', 'deepseek-v4-pro'), ('deepseek', 'deepseek-v3.2'),
        ('huggingface_together', 'Qwen/Qwen3-VL-8B-Instruct'), ('mistral', 'ministral-3b'), ('perplexity', 'sonar'),
        ('perplexity', 'sonar-pro'), ('perplexity', 'sonar-reasoning-pro'), ('openai', 'text-embedding-3-small'),
        ('voyageai', 'voyage-3.5'),
    ]:
        for tokens in [
            (0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (1_000_000, 1_000_000, 0, 0),
            (100, 0, 100, 0), (100, 0, 0, 100), (100, 0, 60, 40), (100, 3, 61, 40), (4808, 10, 1024, 0), (4808, 10, 1024, 512), (2**53, 0, 0, 0),
            (2**53, 2**53, 2**52, 2**52 - 1), (10, 0, 11, 0), (0, 5, 1, 0),
        ]:
            add('kinds', p, model, tokens)


for part in (every_provider, provider_aliases, compact_dates, tiers, constraints, cached):
    part()
print('# book', hashlib.sha256(BOOK).hexdigest())
out = csv.writer(sys.stdout, lineterminator='\n')
out.writerow(['about', 'provider', 'model', 'at', *KINDS, 'book_provider', 'book_model', 'usd_or_reason'])
out.writerows(rows.values())
