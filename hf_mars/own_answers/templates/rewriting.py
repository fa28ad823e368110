"""Requests to do something with a text."""

import random


__all__ = ["draw_rewriting"]

SUBJECTS = [
    "The library on Mill Street",
    "Our neighbour's old dog",
    "The new bakery",
    "The night train to the coast",
    "My grandmother",
    "The school orchestra",
    "A group of volunteers",
    "The town council",
    "The ferry",
    "A young engineer",
    "The museum of clocks",
    "The football team of the village",
]
EVENTS = [
    "had to close for two weeks because of a broken pipe",
    "won a small prize that nobody had expected",
    "was late again, and nobody was surprised",
    "found a letter that was almost a hundred years old",
    "began to offer free lessons on Saturday mornings",
    "got a lot of attention after an article in the newspaper",
    "moved to a bigger place at the edge of the town",
    "lost the keys and called everyone for help",
    "planted forty trees along the river",
    "changed the opening hours without telling anyone",
]
ENDINGS = [
    "Some people liked that, others did not.",
    "It took three days until everything was back to normal.",
    "In the end everyone agreed that it had been a good idea.",
    "The costs were higher than planned, but friends helped out.",
    "Since then many more visitors have come.",
    "Nobody knows yet what will happen next year.",
    "The weather did not make it any easier.",
    "The photos of that day still hang on the wall.",
]
OPERATIONS = [
    "Rewrite this text in a more formal way:",
    "Make this text shorter:",
    "Summarize this text in one sentence:",
    "Rewrite this text for children:",
    "Turn this text into a list of facts:",
    "Write a headline for this text:",
    "Continue this text with three more sentences:",
    "Rewrite this text in the present tense:",
    "Write this text as a friendly message to a friend:",
    "Which questions does this text leave open?",
    "Find a better word for every adjective and adverb in this text:",
    "Make this text sound more exciting:",
    "Extract who, what and when from this text:",
    "Write a reply from a reader to this text:",
    "Rewrite this text from the point of view of an eyewitness:",
    "Translate this text into simple English:",
]


def draw_rewriting(generator: random.Random) -> str:
    """An instruction and a text of two or three sentences."""
    sentences = [f"{generator.choice(SUBJECTS)} {generator.choice(EVENTS)}."]
    sentences += generator.sample(ENDINGS, generator.choice((1, 2)))
    return f"{generator.choice(OPERATIONS)}\n\n{' '.join(sentences)}"
