"""Times that texts in other languages than English name, said on Wednesday, 15 May 2024."""

from __future__ import annotations

from datetime import date

import pytest

from locigraph.kg.language.calendar_parts import calendar_parts
from locigraph.kg.language.dates import resolve_times
from locigraph.kg.language.foreign_times import TIME_WORDS, with_english_times
from locigraph.kg.language.languages import LANGUAGES
from locigraph.kg.language.question_times import FIRST_DAY, question_days

_SAID_ON = date(2024, 5, 15)


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("Ich war letzten Samstag beim Arzt.", "2024-05-11"),
        ("Vor drei Tagen haben wir den Hund abgeholt.", "2024-05-12"),
        ("Heute vor einem Jahr haben wir geheiratet.", "2023-05-15"),
        ("二十年前我在北京住过很久。", "2004-01-01 2004-12-31"),
        ("三十五年前他来了。", "1989-01-01 1989-12-31"),
        ("十五天前我买了书。", "2024-04-30"),
        ("二十日前に引っ越しました。", "2024-04-25"),
        ("去年5月3日我们结婚了。", "2023-05-03"),
        ("昨年の5月3日に結婚しました。", "2023-05-03"),
        ("Wir ziehen am 14. März 2025 um.", "2025-03-14"),
        ("Am 3.5. war die Prüfung, ich habe bestanden.", "2024-05-03"),
        ("Ich fliege in zwei Wochen nach Rom.", "2024-05-27 2024-06-02"),
        ("Gestern Abend gab es Spätzle.", "2024-05-14"),
        ("Nächste Woche wird es regnen.", "2024-05-20 2024-05-26"),
        ("Ich bin am Freitag mit dem Zug gekommen.", "2024-05-10"),
        ("Am Freitag werde ich bei dir sein.", "2024-05-17"),
        ("J'ai déménagé la semaine dernière.", "2024-05-06 2024-05-12"),
        ("Il y a deux mois, on a adopté un chat.", "2024-03-01 2024-03-31"),
        ("Le mariage est le 12 juin 2024.", "2024-06-12"),
        ("On s'est vus samedi dernier et c'était bien.", "2024-05-11"),
        ("En mars dernier nous étions à Lyon.", "2024-03-01 2024-03-31"),
        ("El martes pasado compré una bici.", "2024-05-14"),
        ("Hace tres semanas que no fumo.", "2024-04-22 2024-04-28"),
        ("La boda es el 7 de septiembre de 2024.", "2024-09-07"),
        ("Mañana por la mañana voy al médico.", "2024-05-16"),
        ("Sabato scorso siamo andati al mare.", "2024-05-11"),
        ("Due settimane fa ho preso un gatto.", "2024-04-29 2024-05-05"),
        ("Il matrimonio è il 7 settembre 2024.", "2024-09-07"),
        ("L'anno scorso vivevo a Roma, ma ora no.", "2023-01-01 2023-12-31"),
        ("Na semana passada comprei uma bicicleta.", "2024-05-06 2024-05-12"),
        ("Há três dias que não durmo bem.", "2024-05-12"),
        ("O casamento é a 7 de setembro de 2024.", "2024-09-07"),
        ("Na sexta-feira passada fomos à praia.", "2024-05-10"),
        ("Vorige week heb ik een fiets gekocht.", "2024-05-06 2024-05-12"),
        ("Twee maanden geleden zijn we verhuisd.", "2024-03-01 2024-03-31"),
        ("De bruiloft is op 7 september 2024.", "2024-09-07"),
        ("Over drie weken gaan we op vakantie.", "2024-06-03 2024-06-09"),
        ("先週の土曜日に自転車を買った。", "2024-05-11"),
        ("3日前に病院へ行きました。", "2024-05-12"),
        ("結婚式は2024年9月7日です。", "2024-09-07"),
        ("上周六我买了一辆自行车", "2024-05-11"),
        ("三天前我去了医院", "2024-05-12"),
    ],
)
def test_a_turn_s_time_is_resolved_in_its_language(text: str, days: str) -> None:
    first, *last = map(date.fromisoformat, days.split())
    assert [(found.first, found.last) for found in resolve_times(text, _SAID_ON)] == [
        (first, last[0] if last else first)
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Guten Morgen, wie geht es dir?",
        "Am Freitag Pizza bei uns?",  # past or to come
        "Die Karten für Mai und Max liegen bei mir.",
        "Jeden Montag gehe ich schwimmen.",
        "Tous les lundis je vais à la piscine.",
        "Elle a le mal de mer.",
        "120天前我到了那里。",
        "100年前に建てられた寺です。",
        "1000年前の話です。",
        "大前天我去了那里。",
        "上上周我们见面了。",
    ],
)
def test_words_that_name_no_day_or_an_unclear_one_are_left(text: str) -> None:
    assert resolve_times(text, _SAID_ON) == []


@pytest.mark.parametrize(
    ("question", "first", "last"),
    [
        ("Was hat Ben am Freitag gemacht?", date(2024, 5, 10), date(2024, 5, 10)),
        ("Was ist seit März bei euch passiert?", date(2024, 3, 1), _SAID_ON),
        ("¿Qué pasó antes del 3 de mayo?", FIRST_DAY, date(2024, 5, 2)),
        ("Qu'est-ce que Marc a fait avant-hier ?", date(2024, 5, 13), date(2024, 5, 13)),
        ("Che cosa ha fatto Luca l'altro ieri?", date(2024, 5, 13), date(2024, 5, 13)),
        ("O que é que ela fez ontem à noite?", date(2024, 5, 14), date(2024, 5, 14)),
        ("Wat heeft hij afgelopen zaterdag gedaan?", date(2024, 5, 11), date(2024, 5, 11)),
    ],
)
def test_the_time_that_a_question_names_is_resolved_in_its_language(question: str, first: date, last: date) -> None:
    assert question_days(question, _SAID_ON) == (first, last)


def test_the_dates_of_a_question_are_matched_with_those_of_memories() -> None:
    for question in (
        "Was war am 3. September 2024?",
        "¿Qué pasó el 3 de septiembre de 2024?",
        "2024年9月3日は何をしましたか?",
    ):
        assert [(part.year, part.month, part.day) for part in calendar_parts(question)] == [(2024, 9, 3)]


def test_english_texts_are_only_put_into_lower_case() -> None:
    assert with_english_times("On Monday, 3 March we met Ana in Köln") == "on monday, 3 march we met ana in köln"


def test_every_table_names_all_months_weekdays_units_and_counts() -> None:
    for row in TIME_WORDS.values():
        assert row.name in LANGUAGES
        assert [len(each) for each in (row.months, row.weekdays, row.units, row.counts)] == [12, 7, 5, 13]
