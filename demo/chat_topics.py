"""What the chats that a head for an instruct model learns from are about, and the questions of those held out.

Owns the lists; knows nothing about models.
"""

from __future__ import annotations

import re

TOPICS = """
photosynthesis; black holes; the water cycle; compound interest; inflation; recursion; binary search;
the French Revolution; the Roman Empire; Ancient Egypt; jazz; classical music; impressionism; haiku; chess;
soccer; basketball; yoga; meditation; healthy breakfasts; vegetarian cooking; bread baking; coffee; green tea;
gardening; composting; houseplants; bees; whales; dolphins; penguins; elephants; dinosaurs; volcanoes;
earthquakes; hurricanes; climate change; solar power; wind turbines; nuclear energy; electric cars; bicycles;
trains; airplanes; space travel; Mars; the Moon; the solar system; galaxies; gravity; electricity; magnetism;
light; sound waves; atoms; DNA; evolution; bacteria; viruses; vaccines; the immune system; the heart;
the brain; sleep; memory; stress; exercise; weight loss; running a marathon; hiking; camping;
traveling to Japan; a trip to Italy; Paris; New York City; London; Tokyo; Australia; Brazil; Kenya; India;
China; Canada; Mexico; democracy; human rights; the United Nations; supply and demand; the stock market;
budgeting; saving money; starting a small business; marketing; job interviews; writing a resume;
public speaking; time management; teamwork; leadership; negotiation; remote work; online privacy; passwords;
cybersecurity; artificial intelligence; machine learning; neural networks; databases; SQL joins; Python lists;
Python dictionaries; for loops; functions in Python; object-oriented programming; HTML; CSS; JavaScript; Git;
Linux; operating systems; the Internet; Wi-Fi; smartphones; social media; video games; board games;
fairy tales; mythology; Shakespeare; poetry; novels; movies; theater; photography; painting; sculpture;
architecture; fashion; friendship; love; happiness; courage; honesty; kindness; patience; education; homework;
learning a language; Spanish grammar; English idioms; fractions; prime numbers; the Pythagorean theorem;
probability; statistics; algebra; geometry; calculus; logic puzzles; riddles; jokes; dragons; pirates; robots;
detectives; wizards; a lost puppy; a talking cat; a magic forest; a time machine; an old lighthouse;
a snowy mountain; a desert island; a small village; a haunted house; a rainy day; the ocean; rivers; forests;
deserts; the Arctic; coral reefs; recycling; plastic pollution; water conservation; first aid; dental care;
nutrition; vitamins; protein; sugar; allergies; the common cold; dogs; cats; horses; fish tanks; birds;
butterflies; spiders; holidays; birthdays; weddings; new year's resolutions; parenting; grandparents; siblings;
moving to a new city; cleaning the house; laundry; car maintenance; home repairs; painting a room; knitting;
woodworking; origami; drawing; singing; guitar; piano; drums; dancing; World War II; the Industrial Revolution;
the Renaissance; the Silk Road; the Great Wall of China; the pyramids; Albert Einstein; Marie Curie;
Isaac Newton; Leonardo da Vinci; Nelson Mandela; Martin Luther King Jr.; Cleopatra; Napoleon; Mozart;
Beethoven; credit cards; taxes; insurance; mortgages; retirement; customer service; email etiquette;
meeting notes; project planning; data analysis; spreadsheets; cloud computing; APIs; web servers; unit tests;
debugging; algorithms; sorting; graphs and trees; regular expressions; JSON; encryption
"""
QUESTIONS = """
What is {t}?; Tell me about {t}.; Explain {t} in simple terms.; Explain {t} to a five-year-old.;
Can you give me a short overview of {t}?; Write a short story about {t}.; Write a poem about {t}.;
Write a haiku about {t}.; Give me five interesting facts about {t}.; List three tips about {t}.;
Why is {t} important?; What are the pros and cons of {t}?; How does one get started with {t}?;
What are common misconceptions about {t}?; Write an essay about {t}.; Write a paragraph about {t}.;
Write an email to a friend about {t}.; I have a question about {t}. What should a beginner know?;
Write a dialogue between two people who talk about {t}.; Compare {t} and {u}.; How is {t} related to {u}?;
Give me a quiz with answers about {t}.; Make a bulleted list of key points about {t}.;
Write a blog post about {t}.; Write a product description that has to do with {t}.;
What is the history of {t}?; Describe {t} in one sentence.; Give me a step-by-step guide to {t}.;
I am writing a report on {t}. Suggest an outline.; Write a speech about {t}.;
What questions should I ask an expert on {t}?; Write a funny joke about {t}.;
Summarize what you know about {t}.; Who should learn about {t} and why?; Help me understand {t}.;
What do people get wrong about {t}?; Write a letter to a teacher about {t}.;
Imagine that you are an expert on {t}. Introduce yourself.; Write a news article about {t}.;
Plan a one-week course on {t}.
"""
CODE = """
reverses a string; checks whether a number is prime; computes the factorial of a number;
computes the Fibonacci sequence; sorts a list of numbers; finds the largest number in a list;
counts the words in a text; counts the vowels in a string; checks whether a word is a palindrome;
merges two sorted lists; removes duplicates from a list; flattens a nested list;
computes the average of a list; converts Celsius to Fahrenheit; reads a file line by line;
writes a list to a CSV file; parses a JSON string; finds the second largest number; implements a stack;
implements a queue; implements binary search; implements bubble sort; implements quick sort;
implements a linked list; generates a random password; prints a multiplication table; rolls two dice;
plays rock, paper, scissors; validates an email address; computes the greatest common divisor;
transposes a matrix; multiplies two matrices; finds all anagrams in a list of words;
groups words by their length; computes the sum of digits; converts a number to binary;
checks whether two strings are anagrams; downloads a web page; creates a simple to-do list;
simulates a bank account; draws a triangle of stars; computes compound interest; formats a date;
finds the longest word in a sentence; capitalizes every word
"""
CODE_QUESTIONS = """
Write a Python function that {task}.; How do I write a Python program that {task}?;
Write code in Python that {task}, and explain it.; Write a JavaScript function that {task}.
"""
PASSAGE_QUESTIONS = """
Summarize the following text:\n\n{passage}; Summarize this in one sentence: {passage};
Rewrite the following text in simpler words:\n\n{passage}; What is the main point of this passage?\n\n{passage}
"""
HELD_OUT = """
How do I keep my sourdough starter alive while I'm on holiday?
My landlord refuses to return my deposit. What can I do?
What's the difference between a crocodile and an alligator?
Write a limerick about a tax inspector who loves karaoke.
Can you explain how a refrigerator keeps food cold?
I feel nervous before flights. Give me some ways to calm down.
What should I pack for a three-day trip to Iceland in October?
Explain why the sky is blue.
How do noise-cancelling headphones work?
Write a short thank-you note to a colleague who covered my shift.
What are some good names for a bakery?
How many planets have rings, and which are they?
Give me a recipe for lentil soup.
My bike chain keeps falling off. How can I fix it?
What is the plot of Romeo and Juliet?
Translate 'Where is the train station?' into French and German.
Write a Python function that returns the n-th triangular number.
How can I teach my child to ride a bike?
Explain what a mutex is.
What happened at the Boston Tea Party?
Suggest five icebreaker questions for a team meeting.
Write the opening paragraph of a mystery set in a library.
What is the difference between weather and climate?
How do I politely decline a wedding invitation?
Write a bash script that renames all .txt files to .md.
Why do cats purr?
Summarize the rules of table tennis.
What does a product manager do all day?
Explain the offside rule in football.
Write a short review of a hotel with slow Wi-Fi but a lovely view.
How is cheese made?
Give me advice for my first day at a new school.
"""
"""A line each, of other things than those above."""


def each(items: str) -> list[str]:
    """What stands between semicolons; the end of a line is a space."""
    return [re.sub(r"(?<!\n)\n(?!\n)", " ", item.strip()) for item in items.split(";")]
