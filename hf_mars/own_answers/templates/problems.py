"""Word problems of more kinds than the evaluation task of that name has."""

import random


__all__ = ["draw_problem"]

NAMES = """
    Amira, Bruno, Carla, Dmitri, Elif, Felix, Greta, Hassan, Ines, Jakob, Keiko, Luca, Maren, Nuno, Olga, Pablo, Quinn,
    Rosa, Sven, Tomas, Una, Viktor, Wanda, Yusuf, Zoe
"""
# In each, {a} to {e} are numbers; what is asked must have a sensible answer for all of them.
PROBLEMS = [
    "{name} reads {a} pages every day. How many pages does {name} read in {b} weeks?",
    "A ticket for the zoo costs {a} dollars for an adult and {b} dollars for a child. {name} goes with {c} adults and "
    "{d} children. What do all tickets cost together?",
    "{name} earns {a} dollars an hour and works {b} hours a day, {c} days a week. How much does {name} earn in {d} "
    "weeks?",
    "A train travels {a}0 kilometers in one hour. How far does it travel in {b} hours and a half?",
    "{name} bakes {a} trays with {b} rolls each and sells {c} rolls for 2 dollars apiece. How much money is that?",
    "There are {a} tables with {b} chairs each in a hall, and {c} more chairs along the wall. {d} chairs are broken. "
    "How many chairs can be used?",
    "{name} is {a} years old. {friend} is {b} years older than {name}. How old will {friend} be in {c} years?",
    "A garden is {a} meters wide and {b} meters long. {name} puts a fence around it. One meter of fence costs {c} "
    "dollars. What does the fence cost?",
    "A jacket costs {a}0 dollars. In the sale it is 20 percent cheaper. {name} pays with a note of 500 dollars. How "
    "much change is there?",
    "{name} cycles {a} kilometers to work and the same way back, {b} days a week. How many kilometers is that in {c} "
    "weeks?",
    "{name} has {a} boxes of pencils. Each box has {b} pencils. {name} shares all of them equally among {c} friends. "
    "How many does each get, and how many are left?",
    "A tank holds {a}00 liters. A pump fills it with {b} liters a minute. How many liters are missing after {c} "
    "minutes?",
    "{name} and {friend} pick apples. {name} picks {a} baskets of {b} apples, {friend} picks twice as many baskets of "
    "the same size. How many apples do they have together?",
    "A film starts at 7 o'clock and lasts {a}5 minutes, with a break of {b} minutes. When does it end?",
    "In a class of {a}0 students, half walk to school and a fifth take the bus. The rest come by bike. How many come "
    "by bike?",
    "{name} saves {a} dollars in the first month, and each month {b} dollars more than the month before. How much has "
    "{name} saved after 4 months?",
    "A recipe for {a} people needs {b}00 grams of flour. {name} cooks for twice as many people. How much flour does "
    "{name} need?",
    "{name} buys {a} notebooks for {b} dollars each and {c} pens for 2 dollars each. How much does {name} spend?",
    "A farmer has {a} cows, {b} times as many hens and {c} dogs. How many legs do all the animals have?",
    "{name} has {a} red and {b} blue marbles. {friend} gives {name} {c} more red ones. How many more or fewer red "
    "than blue marbles does {name} have now?",
]
CLOSINGS = ["", "", " Show your work.", " Think step by step.", " Explain how you get there.", " Answer briefly."]


def draw_problem(generator: random.Random) -> str:
    """A question with the numbers filled in."""
    name, friend = generator.sample([name.strip() for name in NAMES.split(",")], 2)
    numbers = {letter: generator.randint(2, 12) for letter in "abcde"}
    question = generator.choice(PROBLEMS).format(name=name, friend=friend, **numbers)
    return question + generator.choice(CLOSINGS)
