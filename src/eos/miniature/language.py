"""Language: a word-level tokenizer, and the LLaVA processor around it.

Both are transformers' own classes, so that chat templates, padding and decoding work as they do
for any LLaVA.
"""

from functools import cache

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import CLIPImageProcessorPil, LlavaProcessor, PreTrainedTokenizerFast

from eos.miniature.scenes import COLORS, LETTERS, PLURALS, SHAPES, SIZES

PAD, START, END, UNKNOWN, IMAGE = "<pad>", "<s>", "</s>", "<unk>", "<image>"
USER, ASSISTANT = "USER:", "ASSISTANT:"
WORDS = (
    "is there a what color shape size the object objects left right above below or of how many "
    "are more nearest to it list shapes all from which in image digit read number value bar bars "
    "highest lowest where does do arrow arrows two lead yes no . ?"
)
TEMPLATE = (
    "{% for message in messages %}"
    "{{ 'USER: ' if message['role'] == 'user' else 'ASSISTANT: ' }}"
    "{% for part in message['content'] %}"
    "{{ '<image> ' if part['type'] == 'image' else part['text'] + ' ' }}"
    "{% endfor %}"
    "{{ '</s> ' if message['role'] != 'user' else '' }}"
    "{% endfor %}"
    "{{ 'ASSISTANT:' if add_generation_prompt else '' }}"
)


@cache
def vocabulary() -> dict[str, int]:
    """All words the miniature knows, with their ids."""
    words = [PAD, START, END, UNKNOWN, IMAGE, USER, ASSISTANT, *map(str, range(10)), *LETTERS]
    words += [*COLORS, *SHAPES, *PLURALS.values(), *SIZES, *WORDS.split()]
    return {word: place for place, word in enumerate(dict.fromkeys(words))}


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Make the tokenizer: one word, one token; prompts are padded at the left."""
    words = Tokenizer(WordLevel(vocabulary(), unk_token=UNKNOWN))
    words.pre_tokenizer = WhitespaceSplit()
    words.post_processor = TemplateProcessing(
        single=f"{START} $A", special_tokens=[(START, vocabulary()[START])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        bos_token=START,
        eos_token=END,
        unk_token=UNKNOWN,
        pad_token=PAD,
        extra_special_tokens={"image_token": IMAGE},
        padding_side="left",
        model_max_length=2048,
    )


def make_processor(*, size: int, patch: int) -> LlavaProcessor:
    """Make the processor of images of ``size`` pixels cut into patches."""
    pictures = CLIPImageProcessorPil(
        size={"height": size, "width": size},
        do_center_crop=False,
        image_mean=[0.5, 0.5, 0.5],
        image_std=[0.5, 0.5, 0.5],
    )
    return LlavaProcessor(
        image_processor=pictures,
        tokenizer=make_tokenizer(),
        patch_size=patch,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,  # the class token, which the strategy drops again
        chat_template=TEMPLATE,
    )
