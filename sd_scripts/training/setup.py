import subprocess,sys
s=subprocess.run(["git","show","HEAD:sd_scripts/training/setup.py"],check=True,capture_output=True,text=True,cwd="/work/main").stdout
def r(a,b):
    global s
    assert a in s,a; s=s.replace(a,b,1)
r('''    optimizer, optimizer_name = make_optimizer(options, method.parameter_groups())
''','''    stepping = stepping_of(options, method.trained_parameters(), seed)
    optimizer, optimizer_name = make_optimizer(options, method.parameter_groups(), stepping)
''')
r('''    trains_base = METHODS[recipe.method].trains_base_weights
''','''    check_stepping(options, accelerator.num_processes)
    trains_base = METHODS[recipe.method].trains_base_weights
''')
r('''from sd_scripts.training.state import Position, Trained, read_position, read_state, write_state
''','''from sd_scripts.training.state import Position, Trained, read_position, read_state, write_state
from sd_scripts.training.stepping import check_stepping, stepping_of
''')
r('''    read_state(folder, trained)
    if run.learning_rates_at_full() != wanted:
''','''    read_state(folder, trained)
    if run.options.resume_learning_rate == "settings":
        use_rates(run.scheduler, list(wanted.values()))
    elif run.learning_rates_at_full() != wanted:
''')
r('from sd_scripts.training.schedulers import make_scheduler','from sd_scripts.training.schedulers import make_scheduler, use_rates')
open('/tmp/v/setup_mine_out.py','w').write(s)
