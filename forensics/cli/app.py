"""All commands. This module is imported for `--help`, so it imports typer and nothing of ours that is heavy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forensics import __version__

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Photograph a stalled or crashed inference engine from outside, and name the rank that broke first.",
    epilog="Exit codes: 0 done; 1 unexpected error; 2 wrong usage; 3 done but incomplete (says what is missing); 4 nothing to work on.",
)

Sysroot = Annotated[str, typer.Option("--sysroot", metavar="DIR", help="Read a recorded tree (DIR/proc, DIR/sys, …) instead of this node.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"inference-forensics {__version__}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")] = False,
) -> None:
    pass


@app.command()
def capture(
    engine: Annotated[str, typer.Option(metavar="KIND", help="Kind of engine to look for: auto, vllm, torchrun, python.")] = "auto",
    pid: Annotated[
        list[int] | None, typer.Option(min=1, help="Capture the engine that this process belongs to. May be repeated.", metavar="PID")
    ] = None,
    log: Annotated[
        list[Path] | None, typer.Option(help="A further log file, for instance of an engine that is gone. May be repeated.", metavar="FILE")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where to write the bundle.", metavar="DIR")] = Path(),
    incident: Annotated[str, typer.Option(help="A name for this incident; goes into the bundle's name.", metavar="ID")] = "",
    profile: Annotated[str, typer.Option(help="minimal, standard or full.", metavar="NAME")] = "standard",
    deadline: Annotated[float, typer.Option(help="Seconds for everything together.", metavar="S")] = 60.0,
    window: Annotated[float, typer.Option(help="Seconds that an engine which stands still is watched.", metavar="S")] = 15.0,
    trigger: Annotated[str, typer.Option(help="What asked for this capture.", metavar="TEXT")] = "",
    reason: Annotated[str, typer.Option(help="Why, in words.", metavar="TEXT")] = "",
    patches: Annotated[Path | None, typer.Option(help="patches.toml: which patches are believed to be applied.", metavar="FILE")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the directory beside the packed bundle.")] = False,
    analyze: Annotated[bool, typer.Option("--analyze", help="Analyse the bundle at once and print the verdict.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    sysroot: Sysroot = "",
) -> None:
    """Photograph this node into a sealed bundle. The bundle's path is the last line of stdout."""
    from forensics.capture.session import CaptureOptions
    from forensics.cli.capture import capture_command

    options = CaptureOptions(
        engine=engine,
        pids=tuple(pid or ()),
        logs=tuple(log or ()),
        out=out,
        incident=incident,
        profile=profile,
        deadline_s=deadline,
        window_s=window,
        trigger=trigger,
        reason=reason,
        patches=patches,
        keep_directory=keep,
        sysroot=sysroot,
    )
    raise typer.Exit(capture_command(options, quiet=quiet, analyze=analyze))


@app.command()
def analyze(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Bundles, directories of bare logs, files, or - for stdin.")],
    out: Annotated[Path | None, typer.Option(help="Also write report.json, report.md and report.html there.", metavar="DIR")] = None,
    fmt: Annotated[str, typer.Option("--format", help="terminal, json, markdown or html.", metavar="FORMAT")] = "terminal",
    fail_on: Annotated[
        str | None, typer.Option(help="possible, supported or established: exit 1 on such a problem.", metavar="GRADE")
    ] = None,
    signatures: Annotated[
        list[Path] | None,
        typer.Option(help="A folder of your own log signatures, beside ~/.config/forensics/signatures. May be repeated.", metavar="DIR"),
    ] = None,
    hypothesis: Annotated[
        list[str] | None,
        typer.Option(
            help="A suspicion to answer with all that speaks for and against it: memory, thermal, cpu, power, overload, network or "
            "patch:NAME. May be repeated; the first four are always answered.",
            metavar="NAME",
        ),
    ] = None,
    rules: Annotated[
        list[Path] | None,
        typer.Option(help="A folder of your own rules, which are run; beside ~/.config/forensics/rules. May be repeated.", metavar="DIR"),
    ] = None,
    timing: Annotated[bool, typer.Option("--timing", help="In JSON, how long each rule took.")] = False,
    record: Annotated[
        bool | None,
        typer.Option(
            "--record/--no-record",
            help="Keep an incident in the history of this machine, or not. Default: where a capture is analysed.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Say which rank broke first, what the others wait for, what was ruled out, and what nobody looked at."""
    from forensics.cli.analyze import analyze_command

    raise typer.Exit(
        analyze_command(paths, out, fmt, fail_on, tuple(signatures or ()), tuple(hypothesis or ()), tuple(rules or ()), timing, record)
    )


@app.command()
def explain(
    id: Annotated[str, typer.Argument(metavar="FINDING", help="The id of a finding, as a report shows it.")],
    rules: Annotated[
        list[Path] | None, typer.Option(help="A folder of your own rules, which are run. May be repeated.", metavar="DIR")
    ] = None,
    fmt: Annotated[str, typer.Option("--format", help="text or json.", metavar="FORMAT")] = "text",
) -> None:
    """What a finding means, what establishes it, when it is wrong, and what to do next."""
    from forensics.cli.rules import explain_command

    raise typer.Exit(explain_command(id, tuple(rules or ()), fmt))


@app.command()
def rules(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH...]", help="Bundles or logs: what each rule says of them, and how long it took.")
    ] = None,
    rules: Annotated[
        list[Path] | None, typer.Option(help="A folder of your own rules, which are run. May be repeated.", metavar="DIR")
    ] = None,
    fmt: Annotated[str, typer.Option("--format", help="text or json.", metavar="FORMAT")] = "text",
) -> None:
    """All findings of the catalogue, which rule makes each, and which have none yet and why."""
    from forensics.cli.rules import rules_command

    raise typer.Exit(rules_command(tuple(paths or ()), tuple(rules or ()), fmt))


signatures_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Log lines that are known: list them, show one, test a folder."
)
app.add_typer(signatures_app, name="signatures")


@signatures_app.command("list")
def signatures_list(
    engine: Annotated[str, typer.Option(help="Only those of this engine.", metavar="NAME")] = "",
    folder: Annotated[list[Path] | None, typer.Option("--signatures", help="A folder of your own. May be repeated.", metavar="DIR")] = None,
) -> None:
    """One line a signature: id, engine, role, the finding that it feeds, where the line comes from."""
    from forensics.cli.signatures import list_command

    raise typer.Exit(list_command(engine, tuple(folder or ())))


@signatures_app.command("show")
def signatures_show(
    id: Annotated[str, typer.Argument(metavar="ID")],
    folder: Annotated[list[Path] | None, typer.Option("--signatures", help="A folder of your own. May be repeated.", metavar="DIR")] = None,
) -> None:
    """Everything about one signature, with its examples."""
    from forensics.cli.signatures import show_command

    raise typer.Exit(show_command(id, tuple(folder or ())))


@signatures_app.command("test")
def signatures_test(
    folder: Annotated[Path | None, typer.Argument(metavar="DIR", help="Your folder; those that ship without it.")] = None,
) -> None:
    """Check a folder of signatures; one line a problem on stdout. Exits 1 when there is one, 4 when nothing is in it."""
    from forensics.cli.signatures import test_command

    raise typer.Exit(test_command(folder))


@app.command()
def collect(
    name: Annotated[str, typer.Argument(metavar="NAME", help="stacks, queues, process, cpu, health, memory, clock, gpu, thermal, …")],
    pid: Annotated[
        list[int] | None, typer.Option(min=1, help="A process to look at. May be repeated. Default: every engine.", metavar="PID")
    ] = None,
    samples: Annotated[int, typer.Option(min=1, max=1000, help="How often to look.")] = 1,
    interval: Annotated[float, typer.Option(min=0.0, help="Seconds from the start of one sample to the next.", metavar="S")] = 2.0,
    out: Annotated[Path | None, typer.Option(help="Write a bundle directory there instead of JSON lines on stdout.", metavar="DIR")] = None,
    log: Annotated[list[Path] | None, typer.Option(help="A further log file, for rpclogs.", metavar="FILE")] = None,
    patches: Annotated[Path | None, typer.Option(help="patches.toml, for patches.", metavar="FILE")] = None,
    native: Annotated[
        bool, typer.Option("--native", help="stacks: native frames and threads too. Holds a process for half a second or more.")
    ] = False,
    sysroot: Sysroot = "",
) -> None:
    """Run one collector alone: evidence as JSON lines on stdout, attempts on stderr."""
    from forensics.cli.collect import collect_command

    raise typer.Exit(
        collect_command(
            name,
            pids=tuple(pid or ()),
            samples=samples,
            interval_s=interval,
            out=out,
            logs=tuple(log or ()),
            patches=patches,
            sysroot=sysroot,
            native=native,
        )
    )


@app.command()
def peek(
    pid: Annotated[int, typer.Argument(min=1, metavar="PID", help="A process that runs CPython 3.10 to 3.14.")],
    expr: Annotated[
        str, typer.Argument(metavar="EXPR", help="Class.attribute, module.NAME, local[0]['key'], len(…). None: what it may begin with.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    at: Annotated[str, typer.Option(help="Of several objects of that class the one at this address.", metavar="ADDRESS")] = "",
    thread: Annotated[str, typer.Option(help="Only what frames of this thread hold: its name or id.", metavar="THREAD")] = "",
    depth: Annotated[int | None, typer.Option(min=0, max=60, help="How deep to follow what an object holds.", metavar="N")] = None,
    items: Annotated[int | None, typer.Option(min=0, max=100_000, help="How many elements of each container.", metavar="N")] = None,
    text: Annotated[bool, typer.Option("--text", help="Show texts of more than 200 characters too.")] = False,
    py_spy: Annotated[str, typer.Option("--py-spy", help="The py-spy program, where it is not found by itself.", metavar="PATH")] = "",
) -> None:
    """Read live objects of a Python process in its memory. Nothing there is stopped, signalled or executed.

    Recognisable secrets (credentials, prompts, variables of the environment) are replaced; any other text is shown as it is.
    """
    from forensics.cli.peek import peek_command

    try:
        address = int(at, 0) if at else None
    except ValueError:
        raise typer.BadParameter(f"{at!r} is no address such as 0x7f0012345678", param_hint="--at") from None
    raise typer.Exit(
        peek_command(pid, expr, as_json=as_json, at=address, thread=thread, depth=depth, items=items, text=text, py_spy=py_spy)
    )


@app.command()
def patches(
    pid: Annotated[
        list[int] | None,
        typer.Option(min=1, help="The engine that this process belongs to. May be repeated. Default: every engine.", metavar="PID"),
    ] = None,
    patches: Annotated[Path | None, typer.Option(help="patches.toml: which patches are believed to be applied.", metavar="FILE")] = None,
    function: Annotated[
        list[str] | None, typer.Option(help="A further function, as module:Class.method. May be repeated.", metavar="NAME")
    ] = None,
    fmt: Annotated[str, typer.Option("--format", help="terminal or json.", metavar="FORMAT")] = "terminal",
    show: Annotated[bool, typer.Option("--show", help="Print every hash and place as it was read, ready for patches.toml.")] = False,
) -> None:
    """What is really loaded in each process: patches by every witness, functions that were replaced at run time. Reads only."""
    from forensics.cli.patches import patches_command

    raise typer.Exit(patches_command(pids=tuple(pid or ()), patches=patches, functions=tuple(function or ()), fmt=fmt, show=show))


@app.command()
def doctor(
    out: Annotated[Path, typer.Option(help="Where bundles would be written.", metavar="DIR")] = Path(),
) -> None:
    """Preflight: what this machine lets us see, with the cure for each lack. Exits 3 when something lacks."""
    from forensics.cli.doctor import doctor_command

    raise typer.Exit(doctor_command(out))


@app.command()
def verify(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle, packed or not.")],
) -> None:
    """Check that a bundle is whole and unchanged, and say what is lost if it is not."""
    from forensics.cli.verify import verify_command

    raise typer.Exit(verify_command(bundle))


@app.command()
def show(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle, packed or not, or a directory of logs.")],
) -> None:
    """List what lies in a bundle: the manifest, every attempt and its outcome, every file."""
    from forensics.cli.show import show_command

    raise typer.Exit(show_command(bundle))


@app.command()
def diff(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="A bundle, packed or not, or a folder of bare files.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="The other one.")],
    fmt: Annotated[str, typer.Option("--format", help="terminal, json or markdown.", metavar="FORMAT")] = "terminal",
) -> None:
    """What changed between two captures, in which direction, and whether their load was comparable."""
    from forensics.cli.diff import diff_command

    raise typer.Exit(diff_command(before, after, fmt))


history_app = typer.Typer(rich_markup_mode=None, help="Incidents that were analysed on this machine: list them, show, forget.")
app.add_typer(history_app, name="history")


@history_app.callback(invoke_without_command=True)
def history(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option(min=0, help="How many of them, 0 for all.", metavar="N")] = 20,
    fmt: Annotated[str, typer.Option("--format", help="terminal or json.", metavar="FORMAT")] = "terminal",
) -> None:
    """Incidents that were analysed on this machine, the latest first, with the fingerprint of their cause."""
    from forensics.cli.history import list_command

    if ctx.invoked_subcommand is None:
        raise typer.Exit(list_command(limit, fmt))


@history_app.command("show")
def history_show(
    fingerprint: Annotated[
        str, typer.Argument(metavar="FINGERPRINT", help="Of a cause, or the id of one incident; its beginning is enough.")
    ],
    fmt: Annotated[str, typer.Option("--format", help="terminal or json.", metavar="FORMAT")] = "terminal",
) -> None:
    """Everything that is kept of the incidents of one cause."""
    from forensics.cli.history import show_command

    raise typer.Exit(show_command(fingerprint, fmt))


@history_app.command("forget")
def history_forget(
    fingerprint: Annotated[
        str, typer.Argument(metavar="FINGERPRINT", help="Of a cause, or the id of one incident; its beginning is enough.")
    ],
) -> None:
    """Take the incidents of one cause, or one incident, out of the history."""
    from forensics.cli.history import forget_command

    raise typer.Exit(forget_command(fingerprint))


@app.command()
def demo(
    out: Annotated[Path | None, typer.Option(help="Keep the demo's bundle and reports there.", metavar="DIR")] = None,
    fault: Annotated[str, typer.Option(help="stop, exception, deadlock or queue-blocked.", metavar="FAULT")] = "stop",
) -> None:
    """No engine needed: start a small one, stall one of its ranks, capture, analyse, and print the verdict."""
    from forensics.cli.demo import demo_command

    raise typer.Exit(demo_command(out, fault))
