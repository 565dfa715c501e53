"""Loading orjson cannot be interrupted halfway."""

import subprocess
import sys


def test_orjson_imports_no_module_of_the_standard_library_while_it_loads() -> None:
    code = (
        "import sys\n"
        "imported = []\n"
        "sys.addaudithook(lambda event, values: imported.append(values[0]) if event == 'import' else None)\n"
        "import duckkb.fast_json\n"
        "print(*imported[imported.index('orjson.orjson'):])\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(ended.stdout.split()) == {"orjson.orjson"}
