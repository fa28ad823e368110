"""Plain requests, some of them with a condition that the answer has to meet."""

import random
from functools import cache


__all__ = ["draw_chat", "draw_conditions"]

TOPICS = """
    baking bread, the moon, learning to swim, city parks, keeping bees, old maps, a rainy afternoon, solar panels,
    house plants, night trains, chess, the history of paper, making soup, a lost key, mountain hiking, libraries,
    the water cycle, a first day at work, planting a garden, bicycle repair, the printing press, good sleep,
    whales, a small bakery, saving money, writing letters, volcanoes, learning a language, street music,
    lighthouses, camping, board games, the invention of glass, a friendly robot, healthy breakfasts, honey, a
    village market, recycling, photography, winter storms, tea, the human heart, a school play, drawing animals,
    coral reefs, clocks, moving, running a marathon, folk tales, the desert, coffee, an unexpected guest, knitting,
    comets, local elections, bridges, public transport, rivers, a broken laptop, tides, bird watching, working from
    home, wild mushrooms, earthquakes, a family reunion, sign language, wind power, museums, bread and cheese, long
    flights, insects, the speed of light, choosing a bicycle, traffic lights, a job interview, electric cars,
    rainforests, a new neighbour, spreadsheets, first aid, kites, the immune system, handwriting, a picnic,
    satellites, owls, painting a room, the alphabet
"""
REQUESTS = """
    Write a short paragraph about {}. | Explain {} to a child. | Give me five tips about {}.
    | Write a short poem about {}. | List three facts about {}. | What are the advantages and disadvantages of {}?
    | Write a friendly email about {}. | Tell me a short story about {}.
    | How would you describe {} to someone who has never heard of it?
    | Suggest a title and a first sentence for an article about {}. | Ask me four questions about {}.
    | What should people know about {}? Two sentences are enough.
    | I have to give a talk about {}. Help me with an outline. | Write a dialogue between two friends about {}.
    | What is a common mistake that people make about {}? | Why does {} matter?
    | Write a diary entry of someone who is interested in {}. | Give me a recipe, a plan or a checklist about {}.
    | Compare {} with something that most people know well. | Invent a proverb about {}, and say what it means.
    | Can you recommend how to start with {}? | What would the world be like without {}?
"""
CONDITIONS = """
    Use at least two paragraphs. | Answer with a numbered list. | Do not use any commas.
    | Write everything in lowercase letters. | End with a question. | Keep it below fifty words.
    | Put the most important word in capital letters. | Begin with the word "Actually".
    | Use exactly four bullet points. | Write the answer as JSON with the keys "title" and "text".
    | Give it a title in double angular brackets. | Write it in the style of a news report.
    | Mention a number in every sentence. | Answer in the first person. | Repeat my request first, then answer it.
    | Separate the parts with three asterisks. | Finish with a postscript that starts with "P.S.".
    | Use simple words only. | Include one example. | Make it sound cheerful.
"""


def draw_chat(generator: random.Random) -> str:
    """A request about something."""
    return generator.choice(entries(REQUESTS, "|")).format(generator.choice(entries(TOPICS, ",")))


def draw_conditions(generator: random.Random) -> str:
    """A request with one or two conditions."""
    conditions = generator.sample(entries(CONDITIONS, "|"), generator.choice((1, 1, 2)))
    return " ".join([draw_chat(generator), *conditions])


@cache
def entries(text: str, separator: str) -> list[str]:
    return [" ".join(entry.split()) for entry in text.split(separator)]
