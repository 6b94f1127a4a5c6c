"""The graph network: conversion of snapshots to tensors, encoders and losses. Nothing here accesses files."""
