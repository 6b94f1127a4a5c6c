from __future__ import annotations

import pytest

from locigraph.kg.language.english import is_english


@pytest.mark.parametrize(
    "text",
    [
        "I went to Paris and saw the river.", "La La Land was so good!", "Loved painting sunsets!", "", "🎉🎉", "Ok 👍",
        "We had crème brûlée at Le Petit, it was the best thing I ate all year.", "Hasta la vista, Ben!",
        "See ya! Catch ya later, my dear.", "Interesting! Sounds like an awesome immersive experience.",
        "Thanks, gonna go, sorry. Cheers! Bye!", "Fekadu's ADR? Sure, push half, I'll.",
        "I bought a green wooden canoe.", "im coming anyway", "I love Los Angeles", "ADR passed Friday, 92 per cent.",
    ],
)  # fmt: skip
def test_english_is_told_from_names_and_titles_of_other_languages(text: str) -> None:
    assert is_english(text)


@pytest.mark.parametrize(
    "text",
    [
        "Gestern habe ich in Hamburg ein rotes Fahrrad gekauft und bin damit zur Arbeit gefahren.",
        "Hier j'ai acheté un vélo rouge à Paris, il me plaît beaucoup.",
        "Mañana me voy a mi casa en Madrid con mi hermana.",
        "Ieri ho comprato una bicicletta rossa a Roma, mi piace molto e non è cara.",
        "Ontem eu comprei uma bicicleta vermelha em Lisboa com a minha irmã.",
        "Gisteren heb ik een rode fiets gekocht in Utrecht, maar het regende.",
        "Igår var jag i Stockholm med Anna och vi köpte en röd båt.",
        "Jeg bor i Oslo og har kjøpt en ny sykkel til min bror.",
        "Byłem wczoraj w Krakowie z Anią i kupiliśmy czerwony rower.",
        "Dün Ankara'da Ayşe ile kırmızı bir bisiklet aldım.",
        "Včera jsem byl v Praze s Annou a koupili jsme červené kolo.",
        "Am fost ieri la Brașov cu Maria și am cumpărat o bicicletă roșie.",
        "A hugom tegnap vett egy piros biciklit Budapesten, és led is van rajta.",
        "Kemarin saya pergi ke Bandung bersama Sari dan membeli sepeda merah.",
        "Hôm qua tôi đi Hà Nội với Lan và mua xe.",
        "Mein Hund heißt Bello.",
        "Ich wohne in Berlin.",
        "Das Wetter in Köln war schön gestern.",
        "J'habite à Lyon.",
        "Jag bor i Stockholm nu.",
        "Jeg bor i Oslo.",
        "Moja siostra jest lekarzem.",
        "Dün akşam Ayşe ve Mehmet ile uzun uzun konuştuk.",
        "Eilen olin Helsingissä Annan kanssa ja ostimme punaisen pyörän.",
        "昨日、東京で赤い自転車を買いました。",
        "Вчера я купил красный велосипед в Москве.",
    ],
)
def test_other_languages_are_not_english(text: str) -> None:
    assert not is_english(text)
