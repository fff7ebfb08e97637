"""``repogen tune``: searches for the Triton settings and the passes that make a published model fastest.

* ``repogen.tune.space`` has the parameters that apply to a model, and turns settings into a ``triton:`` section;
* ``repogen.tune.passes`` builds the model with other optimization passes, which are one of the parameters;
* ``repogen.tune.search`` proposes settings with Optuna and measures them on a ``TestBed``;
* ``repogen.tune.triton`` is the test bed: the published model on a real server, under perf_analyzer;
* ``repogen.tune.comparison`` measures configs side by side in interleaved rounds;
* ``repogen.tune.spec_edit`` writes settings into the spec.
"""
