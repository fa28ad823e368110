"""Requests to write, explain and repair small programs."""

import random


__all__ = ["draw_code"]

TASKS = """
    prints a calendar of a month | renames all pictures in a folder by their date
    | turns a temperature from Celsius into Fahrenheit | merges two dictionaries and adds up the values of equal keys
    | checks whether a year is a leap year | removes all spaces at the end of each line of a file
    | shortens a sentence to a given width and adds dots | turns a number of seconds into hours, minutes and seconds
    | computes the average of a list and ignores missing values | prints a receipt with aligned columns
    | draws a triangle of stars with a given height | sorts a list of people by age and then by name
    | validates that a password has at least ten characters and a digit | reads a CSV file and prints its first rows
    | flattens a list of lists | returns all numbers below n that are divisible by three or five
    | computes compound interest over several years | generates a random password | writes a log message with the time
    | converts kilometers into miles | highlights a word in a text | rotates a list by k places
    | groups a list of transactions by month | computes the distance between two points | splits a list into chunks
    | replaces every tab by four spaces | prints a multiplication table | sends a reminder once a day
    | parses a date like 2024-05-17 | asks the user for a number until it is valid
    | counts down from ten with a pause | checks whether two rectangles overlap | finds missing numbers between 1 and n
    | joins names with commas and an "and"
    | reads settings from a file | simulates rolling two dice many times | translates a text into Morse code
    | downloads a page and counts its links | swaps the keys and the values of a dictionary
    | returns the transpose of a matrix | pads a string on the left up to a given length | computes a shopping total
"""
LANGUAGES = ["Python", "Python", "Python", "Python", "JavaScript", "Java", "C", "a shell script", "SQL or Python"]
REQUESTS = [
    "Write a function in {language} that {task}.",
    "Write a program in {language} that {task}. Add comments.",
    "How would you write code in {language} that {task}?",
    "I need a function that {task}. Please write it in {language} and show how it is called.",
    "Write tests for a {language} function that {task}.",
    "Explain step by step how a function in {language} works that {task}.",
]
SNIPPETS = [
    "total = 0\nfor number in numbers:\n    total += number\nprint(total / len(numbers))",
    "def greet(name):\n    return 'Hello, ' + name + '!'",
    "squares = [n * n for n in range(10) if n % 2]",
    "while low <= high:\n    middle = (low + high) // 2\n    if values[middle] < wanted:\n        low = middle + 1\n"
    "    else:\n        high = middle - 1",
    "with open(path) as file:\n    lines = [line.strip() for line in file if line.strip()]",
    "class Account:\n    def __init__(self, balance=0):\n        self.balance = balance\n\n"
    "    def deposit(self, amount):\n        self.balance += amount",
    "names = sorted(people, key=lambda person: person['age'], reverse=True)",
    "def factorial(n):\n    return 1 if n < 2 else n * factorial(n - 1)",
    "try:\n    value = int(text)\nexcept ValueError:\n    value = None",
    "counts = {}\nfor letter in word:\n    counts[letter] = counts.get(letter, 0) + 1",
]
ABOUT_SNIPPETS = [
    "What does this code do?",
    "Explain this code line by line.",
    "Rewrite this code so that it is easier to read.",
    "Turn this code into a function with a docstring.",
    "Which inputs make this code fail, and how can it be repaired?",
    "Translate this code into JavaScript.",
    "Add type hints and comments to this code.",
    "Write a short test for this code.",
]


def draw_code(generator: random.Random) -> str:
    """A request about a program."""
    if generator.random() < 0.2:
        return f"{generator.choice(ABOUT_SNIPPETS)}\n\n```python\n{generator.choice(SNIPPETS)}\n```"
    task = " ".join(generator.choice(TASKS.split("|")).split())
    return generator.choice(REQUESTS).format(task=task, language=generator.choice(LANGUAGES))
