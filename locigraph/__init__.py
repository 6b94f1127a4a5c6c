"""Learnt conversational memory: a knowledge graph of dialogue, retrieved by one vector search over learnt embeddings.

The packages beside this file are links to the folders at the top of the repository, so that everything is installed
under the one name ``locigraph``: an installed ``kg`` or ``scripts`` would collide with folders of the user's own.
"""
