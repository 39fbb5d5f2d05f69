# What `run-tests`, `try-it` and `.ci/run` share: a virtual environment with this project in it. Sourced, not run.

# Prints a Python that is new enough and can make virtual environments; PYTHON decides where it is set.
find_python() {
    local candidate candidates=(python3 python3.13 python3.12 python3.11 python3.14 python)
    if [ -n "${PYTHON:-}" ]; then candidates=("$PYTHON"); fi
    for candidate in "${candidates[@]}"; do
        if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    echo "no Python >= 3.11 with its venv module among: ${candidates[*]}" >&2
    echo "install one, or name it: PYTHON=/path/to/python $0" >&2
    return 1
}

# make_venv DIRECTORY REQUIREMENT: makes the environment unless it is there, and installs this project into it.
make_venv() {
    local directory=$1 requirement=$2 python
    if [ ! -x "$directory/bin/python" ]; then
        python=$(find_python)
        "$python" -m venv "$directory"
    fi
    # A wheel takes over whatever lies in the last one's build directory, modules that are gone included.
    rm -rf build
    "$directory/bin/python" -m pip install --quiet --disable-pip-version-check "$requirement"
}
