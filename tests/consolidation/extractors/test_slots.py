from __future__ import annotations

import pytest

from locigraph.consolidation.extractors.slots import corrected_value, stated_slot


def replaces(first: str, second: str) -> bool:
    """Whether the second statement of a speaker ends what the first has said."""
    before, after = stated_slot(first, "Ana"), stated_slot(second, "Ana")
    return bool(before and after and after.replaces({"slot": before.name, "value": before.value}))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("My favourite band is Blur.", "My favourite band is playing in Berlin next month."),
        ("My favourite cafe is Lune.", "My favourite cafe is closed today."),
        ("My favourite teacher is Mr Lang.", "My favourite teacher is leaving the school."),
        ("My favourite band is Blur.", "My favourite band is in town now."),
        ("Tom has the flu.", "Lia has the flu now."),
        ("I gave the book to Tom.", "I gave the book to Lia as well."),
        ("June has the key.", "Marta has the key now, too."),
        ("The bus leaves at 9.", "The bus leaves at 10 on Sundays now."),
        ("The exam is on Monday.", "The exam is on Tuesday for the others, actually."),
        ("The flat costs 900 a month.", "The flat costs 30 a month for heating now."),
        ("I work as a nurse.", "I work as a team."),
        ("I work as a nurse.", "Tonight I'm working as a DJ at a wedding."),
        ("I work as a nurse.", "I got a job as a waiter for the summer."),
        ("I live in Leeds.", "I moved to Obsidian, it keeps all my notes."),
        ("I live in Leeds.", "I live in Pacific Time, so call later."),
        ("I live in Leeds.", "I moved to Figma for my drawings."),
        ("I live in Leeds.", "I moved to Verizon last month because my old plan was too expensive."),
        ("I live in Leeds.", "In the game, I live in Whiterun."),
        ("I gave my number to Tom.", "I gave my number to Bob."),
        ("Our new kitten is called Milo.", "Our new kitten is called Otto."),
        ("The bakery opens at 8.", "The new bakery opens at 7."),
        ("The name of the shop is Lune.", "The owner of the shop is now Tom."),
        ("The capacity of the tent is 4.", "The price of the tent is now 200."),
        ("My favourite part is the ending.", "My favourite part is the food trucks."),
    ],
)
def test_what_stands_beside_an_earlier_value_does_not_end_it(first: str, second: str) -> None:
    assert not replaces(first, second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("My favourite sport is climbing.", "My favourite sport is swimming."),
        ("June has the spare key.", "Marta has the spare key now."),
        ("June has the spare key.", "I gave the spare key to Marta."),
        ("The car is with Tom.", "I handed the car to Anna."),
        ("The rent is 900 euros a month.", "The rent is 950 now."),
        ("The rent is 900.", "Now the rent is 950."),
        ("The rent is 900.", "The rent went up from 900 to 950."),
        ("The rent is 900.", "The rent now is 950."),
        ("The meeting is at 3.", "The meeting was moved to 4pm."),
        ("My brother is 80 kg.", "My brother is 85 kg now."),
        ("My phone number is 555-1234.", "My new phone number is 555-9999."),
        ("The museum opens at 9.", "The museum now opens at 10."),
        ("The wedding is on Saturday 3 May.", "The wedding has been moved to 17 May."),
        ("The wedding is on Saturday 3 May.", "Actually, the wedding is on 17 May."),
        ("The meeting is on Monday.", "The meeting was moved from Monday to Tuesday."),
        ("Our team lead is Priya.", "Our team lead is Sam now."),
        ("I work at Acme.", "I started a new job at Globex."),
        ("I work for Acme.", "I work at Globex now."),
        ("I live in Rome.", "I moved to Oslo."),
        ("I live in Rome.", "I moved to Oslo for my new job."),
        ("I live in Rome.", "I moved to Berlin for my boyfriend."),
        ("I live in Rome.", "I moved to Porto and opened a bank account."),
        ("I live in Rome.", "I moved to Los Angeles to work in the film industry."),
        ("I work as a nurse.", "I now work as a freelance designer."),
        ("I work as a nurse.", "I've been working as a teacher for two months now."),
        ("The deadline is 1 May.", "The new deadline is 5 May."),
        ("My shift starts at 6.", "My new shift starts at 7."),
        ("The owner of the shop is Tom.", "The owner of the shop is Lia now."),
        ("My new rent is 900.", "My new rent is 950."),
        ("I live in Leeds.", "I moved to Porto, it is cheaper there."),
        ("I live in Leeds.", "I moved to Table Mountain."),
    ],
)
def test_a_plain_change_ends_what_was_said_before(first: str, second: str) -> None:
    assert replaces(first, second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("The car is with Tom.", "The car costs 5000 now."),
        ("My flight leaves at 6:40.", "My flight leaves from Gate 12 now."),
        ("The library opens at 9.", "The library closes at 8 now."),
        ("The meeting starts at 10.", "The meeting ends at 12 now."),
        ("My son is called Max.", "My son is 7 now."),
        ("My dog is called Rex.", "I gave my dog to Anna for the weekend."),
        ("My boss is Karen.", "My boss is at Costco now."),
        ("The concert is on Friday.", "The concert costs 30 now."),
        ("The tickets cost 50.", "I gave the tickets to Lisa."),
        ("Our team meets on Monday.", "Our team is now 5 people."),
        ("The kids are at Lincoln High.", "The kids are with Grandma now."),
        ("The rent is 900 euros.", "The rent is 300 for the new garage."),
        ("The meeting is on Tuesday.", "The meeting is on Monday."),  # nothing says that it changed
        ("June has the spare key.", "Ben said Marta has the spare key now."),
        ("June has the spare key.", "If Marta has the spare key now, fine."),
        ("I work at Acme.", "I joined Sarah for lunch."),
        ("I work at Acme.", "I joined Facebook to see photos of the kids."),
        ("I work at Acme.", "I work at Home Depot now on weekends."),
        ("The rent is 900.", "The rent went up by 50."),
        ("The wedding is on Saturday.", "The wedding is at 3 now."),
        ("The meeting is on Friday.", "The meeting was moved to Room 12."),
        ("The exam starts at 9.", "The exam was moved to Monday."),
        ("My brother is 30.", "My brother is 80 kg now."),
        ("The flat costs 900.", "The flat is 3 km away now."),
    ],
)
def test_another_thing_or_another_side_of_it_ends_nothing(first: str, second: str) -> None:
    assert stated_slot(first, "Ana") is not None
    assert not replaces(first, second)


@pytest.mark.parametrize(
    ("sentence", "values"),
    [
        ("It's the 14th now, not the 9th.", ("14th", "9th")),
        ("Sorry, I meant Goodwill, not Walmart.", ("goodwill", "walmart")),
        ("Actually the flight is at 11:15 and not at 9:40.", ("11:15", "9:40")),
        ("We are flying to Paris instead of Rome this summer.", None),
        ("I met Tom, not Tim.", None),
        ("I like Coke, not Pepsi.", None),
        ("Ben said it's the 14th, not the 9th.", None),
        ("If it's the 14th, not the 9th, tell me.", None),
    ],
)
def test_a_correction_names_both_values(sentence: str, values: tuple[str, str] | None) -> None:
    assert corrected_value(sentence) == values


@pytest.mark.parametrize(
    ("before", "sentence", "values"),
    [
        ("Lune has closed.", "Actually it's now Orbit, behind the post office.", ("orbit", "lune")),
        ("The Lune is full.", "So it's Orbit now.", ("orbit", "lune")),
        ("Lune has closed.", "It's Monday.", None),  # an aside
        ("Lune has closed.", "Maybe it's now Orbit.", None),
        ("I met Lune.", "It's now Orbit.", None),
        ("", "It's now Orbit.", None),
    ],
)
def test_what_takes_the_place_of_what_has_ended_corrects_it(
    before: str, sentence: str, values: tuple[str, str] | None
) -> None:
    assert corrected_value(sentence, after=before) == values


@pytest.mark.parametrize("before", ["Well, I did not look, but", "Well, Tom said so, and"])
def test_what_is_denied_or_reported_in_an_earlier_clause_takes_nothing_from_a_statement(before: str) -> None:
    assert stated_slot(f"{before} the rent is 950 now.", "Ana") is not None
