"""The house: no module imports itself, by however many others."""

import grimp


def test_no_circle_of_imports() -> None:
    graph = grimp.build_graph("spectool")
    waiting = {module: graph.find_modules_directly_imported_by(module) - {module} for module in graph.modules}
    # What imports nothing that is left is taken away; a circle is what never gets there.
    while free := {module for module, imported in waiting.items() if not imported & waiting.keys()}:
        waiting = {module: imported for module, imported in waiting.items() if module not in free}
    assert not waiting, sorted(waiting)
