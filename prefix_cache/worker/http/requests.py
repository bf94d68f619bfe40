"""What a body asks the engine for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prefix_cache.errors import InvalidArgument, InvalidRequest, InvalidTokens, PromptTooLarge
from prefix_cache.openai_api.bodies import Body, GeneratingBody, read_body
from prefix_cache.worker.sampling import SamplingParams

# What would change the answer, and the values by which it does not.
_UNSUPPORTED: dict[str, tuple[object, ...]] = {
    "add_generation_prompt": (True,),
    "allowed_token_ids": (),
    "bad_words": ([],),
    "best_of": (1,),
    "continue_final_message": (False,),
    "echo": (False,),
    "frequency_penalty": (0,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "include_stop_str_in_output": (False,),
    "length_penalty": (1,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "min_p": (0,),
    "min_tokens": (0,),
    "modalities": (["text"],),
    "presence_penalty": (0,),
    "prompt_logprobs": (),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "skip_special_tokens": (True,),
    "stop_token_ids": ([],),
    "structured_outputs": (),
    "suffix": ("",),
    "tool_choice": ("none", "auto"),
    "top_k": (0, -1),
    "top_logprobs": (0,),
    "truncate_prompt_tokens": (),
}


def refuse_unsupported(body: bytes) -> None:
    """Raise InvalidRequest for a field that the worker cannot heed."""
    for name, value in read_body(dict[str, object], body).items():
        if value is not None and value not in _UNSUPPORTED.get(name, (value,)):
            raise InvalidRequest(f"{name} is {value!r}, which this worker does not do", param=name)


def sampling_params(body: GeneratingBody, max_tokens: int, seed: int) -> SamplingParams:
    """Return how to answer; ``seed`` is for a body without one.  Raises InvalidArgument."""
    n = body.num_answers
    stop = () if body.stop is None else body.stop
    return SamplingParams(
        max_tokens=max_tokens,
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        seed=seed if body.seed is None else body.seed,
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        n=n,
        beam_width=n if body.use_beam_search else 0,
        ignore_eos=bool(body.ignore_eos),
    )


@contextmanager
def naming_fields(body: Body) -> Iterator[None]:
    """Make an error about a field of ``body`` name it as clients of the API expect."""
    prompt = "messages" if getattr(body, "prompt", None) is None else "prompt"
    try:
        yield
    except InvalidRequest:
        raise
    except (PromptTooLarge, InvalidTokens) as error:
        raise type(error)(str(error), **error.details, param=prompt) from error
    except InvalidArgument as error:
        about = (*error.details, error.details.get("name"))
        fields = [name for name in about if name in body.__struct_fields__]
        raise InvalidRequest(str(error), param=fields[0] if fields else None) from error
