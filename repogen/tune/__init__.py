"""``repogen tune``: searches for the Triton settings that make a published model fastest.

* ``repogen.tune.space`` has the parameters that apply to a model, and turns settings into a ``triton:`` section;
* ``repogen.tune.search`` proposes settings with Optuna and measures them on a ``TestBed``;
* ``repogen.tune.triton`` is the test bed: the published model on a real server, under perf_analyzer;
* ``repogen.tune.comparison`` measures configs side by side in interleaved rounds;
* ``repogen.tune.spec_edit`` writes settings into the spec.
"""
