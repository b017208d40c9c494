"""Remove one protection after another, and show that its test notices.

    python tests/soak/protections.py [WORDS]     # those with the words in their names; all take 15 minutes

Each protection is a line of the package. In a copy of the source it is replaced by one that does not protect,
and its test must then fail. A test that still passes protects nothing, and the exit code is 1.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAX_SECONDS = 600  # for one test
ENVIRONMENT = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": ""}  # which is faster


@dataclass(frozen=True)
class Protection:
    """A line that protects, what it is without the protection, and the test that must then fail."""

    name: str
    file: str  # in src/noise2text
    line: str
    without: str
    test: str  # in tests

    def is_noticed(self, copy: Path) -> str:
        """The test that fails in the copy without the protection; empty if none does."""
        file = copy / "src" / "noise2text" / self.file
        whole = file.read_text()
        file.write_text(whole.replace(self.line, self.without))
        try:
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
            path, _, function = self.test.partition("::")
            chosen = ["-k", function] if function else []
            done = subprocess.run(
                [*command, str(copy / "tests" / path), *chosen],
                cwd=copy,
                env=os.environ | ENVIRONMENT | {"PYTHONPATH": str(copy / "src")},
                capture_output=True,
                text=True,
                timeout=MAX_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return ""  # a test that hangs says nothing
        finally:
            file.write_text(whole)
        found = re.search(r"^FAILED \S+::(\S+)", done.stdout, re.MULTILINE)
        return found[1] if found and done.returncode == 1 else ""


PROTECTIONS = [
    # Training
    Protection(
        "checksums of checkpoints",
        "training/checkpoint.py",
        "            if hash_file(folder / name) != checksum:",
        "            if not (folder / name).exists():",
        "commands/test_faults.py::test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken",
    ),
    Protection(
        "damaged checkpoints are left out",
        "commands/run_setup.py",
        "damaged = {folder: file for folder, file in damage.items() if file is not None}",
        "damaged = {folder: file for folder, file in damage.items() if False}",
        "commands/test_faults.py::damaged",
    ),
    Protection(
        "a checkpoint is renamed before it is deleted",
        "training/checkpoint.py",
        "    os.rename(folder, discarded)",
        "    shutil.rmtree(folder)",
        "commands/test_faults.py::test_a_run_killed_while_it_deletes_a_checkpoint_goes_on",
    ),
    Protection(
        "copies of checkpoints",
        "training/checkpoint.py",
        "    steps = {path: _NAME.fullmatch(path.name) for path in run.glob",
        "    steps = {path: _NAME.match(path.name) for path in run.glob",
        "training/test_checkpoint.py::test_a_copy_of_a_checkpoint_is_neither_the_newest_nor_deleted",
    ),
    Protection(
        "drafts of checkpoints go when the disk is full",
        "training/checkpoint.py",
        "    except BaseException:\n        shutil.rmtree(draft, ignore_errors=True)",
        "    except BaseException:",
        "training/test_checkpoint.py::test_a_draft_goes_when_a_checkpoint_cannot_be_written",
    ),
    Protection(
        "a full disk is one sentence",
        "core/files.py",
        "    except (OSError, SafetensorError) as error:",
        "    except ZeroDivisionError as error:",
        "commands/test_faults.py::test_a_full_disk_during_a_checkpoint_is_one_sentence",
    ),
    Protection(
        "a changed corpus is refused",
        "commands/run_setup.py",
        "if before is None or now is None or before == now:",
        "if True:",
        "commands/test_faults.py::test_a_changed_corpus_is_refused_with_the_difference_unless_asked_for",
    ),
    Protection(
        "a changed setting is refused",
        "commands/run_setup.py",
        "if value != before[name] and name not in CHANGEABLE_ON_RESUME and not self.allow_changes:",
        "if False:",
        "commands/test_faults.py::test_a_changed_setting_is_refused_with_both_values_unless_asked_for",
    ),
    Protection(
        "a resumed run deletes nothing",
        "commands/run_setup.py",
        "if is_new and self.group.rank == 0 and checkpoint.find_checkpoint(self.out) is None:",
        "if self.group.rank == 0 and checkpoint.find_checkpoint(self.out) is None:",
        "commands/test_faults.py::test_a_validation_file_that_is_missing_for_a_moment_costs_nothing",
    ),
    Protection(
        "metrics of a resumed run",
        "commands/training_run.py",
        '        self.means.unlogged = progress.get("unlogged", {})',
        "        self.means.unlogged = {}",
        "commands/test_faults.py::test_the_metrics_of_a_resumed_run_are_those_of_an_undisturbed_one",
    ),
    Protection(
        "lines of metrics after the checkpoint are replaced",
        "training/loggers.py",
        "if _step_of_line(line) < start.first_step]",
        "if True]",
        "commands/test_faults.py::test_the_metrics_of_a_resumed_run_are_those_of_an_undisturbed_one",
    ),
    Protection(
        "a loss that is not a number",
        "commands/training_run.py",
        "        if bad:\n            newest",
        "        if False:\n            newest",
        "commands/test_resume.py::test_a_loss_that_is_not_a_number_stops",
    ),
    Protection(
        "one run per folder",
        "core/locks.py",
        "            if not _flock(handle, wait=False):",
        "            if False:",
        "commands/test_resume.py::test_one_folder_has_one_run_at_a_time",
    ),
    Protection(
        "a process that lost another ends with a sentence",
        "cli/__init__.py",
        "    if isinstance(error, RuntimeError) and re.search(_LOST_PEER, str(error)):",
        "    if False:",
        "cli/test_main.py::process",
    ),
    # Everything that writes
    Protection(
        "files appear whole",
        "core/files.py",
        "f\"{path.name}{writer and f'.{writer}'}.draft\"",
        "path.name",
        "core/test_files.py::test_a_full_disk_is_one_sentence_and_leaves_the_file_before",
    ),
    Protection(
        "folders appear whole",
        "core/files.py",
        "            os.replace(draft, out)\n        finally:",
        "        finally:\n            shutil.copytree(draft, out, dirs_exist_ok=True)",
        "core/test_files.py::test_a_folder_is_whole_or_absent",
    ),
    Protection(
        "new names survive a power failure",
        "core/files.py",
        "    for folder in {path.parent for path in writers}:\n        flush_folder(folder)\n",
        "",
        "core/test_files.py::test_a_new_name_is_on_the_disk_too",
    ),
    Protection(
        "two writers of one output",
        "core/locks.py",
        "        lock_open_file(lock.fileno(), lock_path, output=path)",
        "        pass",
        "commands/test_outputs.py::test_two_commands_for_one_output_are_refused_by_its_name",
    ),
    Protection(
        "generate has one writer",
        "commands/output_file.py",
        "        if not try_lock(file.fileno()):",
        "        if False:",
        "cli/test_generate_output.py::test_an_output_has_one_writer",
    ),
    Protection(
        "the half last line of a stopped job is cut off",
        "commands/output_file.py",
        "    file.truncate(end)",
        "    file.seek(0, 2)",
        "cli/test_generate_output.py::test_a_stopped_job_goes_on_with_the_same_rows",
    ),
    Protection(
        "a killed prepare is continued",
        "commands/prepare.py",
        "    if not file.exists():\n        (out",
        "    if True:\n        (out",
        "commands/test_outputs.py::test_a_killed_prepare_is_finished_by_its_own_command",
    ),
    Protection(
        "a preparation is complete or absent",
        "data/token_store.py",
        '    partial = folder / "partial"',
        "    partial = folder",
        "data/test_token_store.py::killed",
    ),
    Protection(
        "a changed input is not resumed",
        "commands/input_texts.py",
        '        digest.update(text.encode() + b"\\n")',
        "        pass",
        "cli/test_generate_output.py::test_a_job_is_not_resumed_with_other_texts",
    ),
    Protection(
        "texts without a standard output",
        "cli/output.py",
        "        if sys.__stdout__ is None:",
        "        if False:",
        "cli/test_streams.py::test_texts_without_a_standard_output_are_not_lost_silently",
    ),
    Protection(
        "a page has one writer",
        "cli/page.py",
        "    with lock_output(out):",
        "    if True:",
        "commands/test_outputs.py::test_two_commands_for_one_output_are_refused_by_its_name",
    ),
    Protection(
        "a converted folder is whole or absent",
        "models/model_files.py",
        "        with write_folder_atomically(new) as draft:\n            yield draft",
        "        new.mkdir()\n        yield new",
        "models/test_convert.py::test_a_killed_conversion_leaves_nothing_under_the_new_name",
    ),
    Protection(
        "votes belong to their texts",
        "serving/votes.py",
        "        if found is not None and found[0] != checksum:",
        "        if False:",
        "serving/test_votes.py::test_votes_belong_to_their_texts",
    ),
    Protection(
        "damaged votes",
        "serving/votes.py",
        "            if kinds != [str, int, str, str]",
        "            if False",
        "serving/test_votes.py::test_a_damaged_vote_is_named",
    ),
    Protection(
        "what failed is tried again whatever the clock says",
        "experiments/grid.py",
        "            return path.stat().st_mtime_ns != self.written_before.get(path)",
        "            return path.stat().st_mtime_ns > 1e18",
        "experiments/test_grid.py::test_an_arm_that_fails_leaves_the_others_intact",
    ),
    # Input and folders from strangers
    Protection(
        "the encoding of a file of bad lines is named",
        "data/corpus.py",
        " and not skipped.wrongly_encoded:",
        ":",
        "data/test_formats.py::test_latin_1_is_named_and_never_trained_on",
    ),
    Protection(
        "few rows of Parquet at a time",
        "data/formats.py",
        "table.iter_batches(PARQUET_ROWS)",
        "table.iter_batches()",
        "data/test_formats.py::test_a_small_file_of_a_long_text_many_times_takes_little_memory",
    ),
    Protection(
        "settings that are there twice",
        "core/plain_yaml.py",
        "                if key.value in seen:",
        "                if False:",
        "core/test_hostile_settings.py",
    ),
    Protection(
        "formulas in a sheet",
        "serving/vote_sheet.py",
        "if text.startswith(FORMULA_STARTS) else text",
        "if False else text",
        "serving/test_vote_sheet.py::test_a_spreadsheet_computes_nothing_from_a_text",
    ),
    Protection(
        "control characters of a text",
        "cli/output.py",
        "    if not sys.stdout.isatty():",
        "    if True:",
        "cli/test_streams.py::test_a_terminal_does_not_obey_a_text",
    ),
    Protection(
        "sizes of published checkpoints",
        "models/limits.py",
        "    _require_possible_sizes(config, path)\n    try:",
        "    try:",
        "models/test_import_diffuseq.py::test_what_cannot_be_imported_is_named",
    ),
    Protection(
        "checksums of weights",
        "core/weights_file.py",
        "        if self.checksums and self.checksums[TENSORS] != _hash_tensors(tensors):",
        "        if False:",
        "models/test_hostile_folders.py::test_a_flipped_bit_of_any_file_is_noticed",
    ),
    Protection(
        "a model folder is of one moment",
        "models/model_files.py",
        "            if files.changed_file is None or not is_being_written:",
        "            if True:",
        "models/test_hostile_folders.py::test_a_reader_never_sees_two_models_at_once",
    ),
    Protection(
        "files of two models are refused",
        "models/model_files.py",
        "        if self.changed_file is not None:",
        "        if False:",
        "models/test_hostile_folders.py::test_files_of_another_model_are_named",
    ),
    Protection(
        "networks larger than their weights",
        "models/limits.py",
        "        with AllocationLimit(elements, tensors, str(path)):",
        "        if True:",
        "models/test_hostile_folders.py::test_a_hostile_folder_is_refused_in_a_sentence",
    ),
    Protection(
        "kernels of the hub",
        "models/pretrained_architecture.py",
        '    "attn_implementation",\n',
        "",
        "models/test_huggingface.py",
    ),
    Protection(
        "external data of ONNX graphs",
        "acceleration/onnx_runtime.py",
        "    if EXTERNAL_DATA_KEY in graph:",
        "    if False:",
        "commands/test_export.py",
    ),
    Protection(
        "checksums of prepared corpora",
        "data/token_store.py",
        "hash_file(folder / name) != checksum:",
        "False:",
        "data/test_hostile_stores.py::test_a_flipped_bit_is_noticed",
    ),
    Protection(
        "aliases in YAML",
        "core/plain_yaml.py",
        "            if isinstance(event, yaml.AliasEvent):",
        "            if False:",
        "core/test_hostile_settings.py",
    ),
    Protection(
        "long lines",
        "data/text_files.py",
        "            pending = pending[:_PIECE_BYTES]",
        "            pending = pending[:]",
        "data/test_corpus.py::test_a_long_line_of_utf_16",
    ),
    Protection(
        "words without end",
        "preprocessing/preprocessor.py",
        "    return all(len(word) <= MAX_WORD for word in text.split())",
        "    return True",
        "fuzz/test_fuzz.py::test_the_time_to_preprocess_a_long_text_is_not_quadratic",
    ),
    # Memory, determinism and the service
    Protection(
        "a batch that does not fit is halved",
        "models/base.py",
        "                    if not is_out_of_memory(error) or not batched.halve_batches():",
        "                    if True:",
        "models/test_base.py::test_a_batch_that_does_not_fit_into_memory_is_halved",
    ),
    Protection(
        "one thread at a time uses a GPU",
        "core/devices.py",
        "    with _GPU_LOCK, torch.cuda.device(device):",
        "    with torch.cuda.device(device):",
        "core/test_devices.py",
    ),
    Protection(
        "forked processes",
        "core/devices.py",
        "        os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))",
        "        pass",
        "models/test_fork.py",
    ),
    Protection(
        "one failing request",
        "serving/request_batching.py",
        "        if len(batch) == 1:\n            _fail",
        "        if True:\n            _fail",
        "serving/test_faults.py::test_a_request_on_which_the_model_fails_leaves_the_others_untouched",
    ),
    Protection(
        "SIGTERM waits for what was accepted",
        "serving/server.py",
        "        if self._is_draining:\n",
        "        if True:\n",
        "serving/test_app.py::test_a_draining_service_finishes_what_it_accepted_and_refuses_the_rest",
    ),
    Protection(
        "a queue has an end",
        "serving/request_batching.py",
        "            if self._waiting and self.num_waiting + len(job.texts) > self.max_queue:",
        "            if False:",
        "serving/test_app.py::test_a_full_queue_answers_503_with_retry_after",
    ),
    Protection(
        "a canceled request leaves the queue",
        "serving/request_batching.py",
        "        job.future.add_done_callback(lambda future: self._forget(job))",
        "        pass",
        "serving/test_app.py::test_a_client_that_goes_away_frees_its_place",
    ),
    Protection(
        "a request that is left is canceled",
        "serving/service.py",
        "            answer.cancel()\n",
        "",
        "serving/test_app.py::test_a_client_that_goes_away_frees_its_place",
    ),
    Protection(
        "a stream that is left leaves no error",
        "serving/generate_routes.py",
        "        answer.cancel()",
        "        pass",
        "serving/test_stream.py::test_a_stream_that_is_left_ends_its_batch_and_frees_its_place",
    ),
    Protection(
        "a request that is left is abandoned",
        "serving/service.py",
        "            generation.job.abandon()",
        "            pass",
        "serving/test_stream.py::test_a_batch_that_streams_and_others_have_left_ends",
    ),
    Protection(
        "a batch that nobody waits for ends",
        "serving/request_batching.py",
        "        if all(job.is_abandoned for job in batch):",
        "        if False:",
        "serving/test_stream.py::test_a_stream_that_is_left_ends_its_batch_and_frees_its_place",
    ),
    Protection(
        "a batch that somebody waits for goes on",
        "serving/request_batching.py",
        "        if all(job.is_abandoned for job in batch):",
        "        if any(job.is_abandoned for job in batch):",
        "serving/test_stream.py::test_a_stream_that_is_left_while_it_runs_does_not_end_the_others",
    ),
    Protection(
        "no step is sent twice",
        "serving/step_stream.py",
        "        if self._number > self._sent:",
        "        if True:",
        "serving/test_stream.py::test_a_batch_that_is_generated_again_sends_no_step_twice",
    ),
    Protection(
        "bodies have an end",
        "serving/body_limit.py",
        "            if len(body) > self.max_bytes:",
        "            if False:",
        "serving/test_app.py::test_a_body_of_unknown_size_is_limited_too",
    ),
    Protection(
        "limits of steps",
        "serving/limits.py",
        "        if getattr(config, name, 0) > most:",
        "        if False:",
        "serving/test_app.py::test_a_mistake_is_one_sentence",
    ),
    Protection(
        "a request names no folder of a classifier",
        "serving/request_settings.py",
        "    if name not in guides:",
        "    if False:",
        "serving/test_app.py::test_a_mistake_is_one_sentence",
    ),
    Protection(
        "keys are compared",
        "serving/service.py",
        "            if number is None:",
        "            if False:",
        "serving/test_app.py::test_keys_are_asked_for",
    ),
    Protection(
        "a client that asks too often waits",
        "serving/access.py",
        "            if tokens < 1:",
        "            if False:",
        "serving/test_app.py::test_a_client_that_asks_too_often_waits",
    ),
    Protection(
        "texts of users are not logged",
        "serving/service.py",
        "        if self.log_texts:",
        "        if True:",
        "serving/test_app.py::test_texts_are_logged_only_if_asked_for",
    ),
    Protection(
        "errors are logged without their messages",
        "serving/request_batching.py",
        '    return f"{type(error).__name__}\\n{',
        '    return f"{error!r}\\n{',
        "serving/test_app.py::test_a_bug_is_an_answer_without_a_stack_trace",
    ),
    Protection(
        "as many models as fit are in memory",
        "serving/model_cache.py",
        "        while len(self._workers) >= self.limits.models:",
        "        while False:",
        "serving/test_model_cache.py",
    ),
    Protection(
        "thousands of connections",
        "serving/start.py",
        "    allow_many_connections()\n",
        "",
        "soak/test_soak.py::test_an_attacked_service_answers_rightly",
    ),
]
"""The protections and their tests."""


def main() -> None:
    """Remove each protection in a copy, and print the test that noticed it."""
    words = " ".join(sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in ("src", "tests"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        unnoticed = 0
        for each in PROTECTIONS:
            if words in each.name:
                test = each.is_noticed(copy)
                unnoticed += not test
                print(f"{each.name}: {test or 'NOT NOTICED'}", flush=True)
    sys.exit(bool(unnoticed))


if __name__ == "__main__":
    main()
