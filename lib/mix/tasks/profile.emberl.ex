# SPDX-License-Identifier: Apache-2.0
defmodule Mix.Tasks.Profile.Emberl do
  use Mix.Task

  @shortdoc "Profiles the given file or expression with emberl"

  @moduledoc """
  Runs an expression or a script and prints calls, time and heap words of every function.

      mix profile.emberl -e "Enum.map(1..1000, &Integer.to_string/1)"
      mix profile.emberl my_script.exs argument
      mix profile.emberl -e "Hello.world()" --type memory --matching Hello

  The project is compiled and its applications are started first, as by `mix run`.
  The switches are those of `mix profile.tprof`, which this replaces on all releases
  of Erlang.

  ## Switches

    * `--type` - `all` (default), `time`, `memory` or `calls`
    * `--matching` - profile these functions only: `Module`, `Module.function` or
      `Module.function/arity`
    * `--calls`, `--time`, `--memory` - leave out functions with fewer calls, microseconds
      or words than this
    * `--sort` - `time`, `memory`, `calls` or `per_call`; by default what `--type` measures,
      time for `all`
    * `--report` - `process` (default) or `total`, all processes together
    * `--engine` - `counters` or `tracer`; see `:emberl.profile/2`
    * `--no-set-on-spawn` - leave out spawned processes
    * `--no-warmup` - run the code once instead of twice, the first time without profiling
    * `--eval`, `-e` - the code to profile
    * `--require`, `-r` and `--parallel`, `-p`, `--no-compile`, `--no-deps-check`,
      `--no-archives-check`, `--no-halt`, `--no-start`, `--no-elixir-version-check` - as
      for `mix run`
  """

  @switches [
    type: :string,
    matching: :string,
    calls: :integer,
    time: :integer,
    memory: :integer,
    sort: :string,
    report: :string,
    engine: :string,
    set_on_spawn: :boolean,
    warmup: :boolean,
    eval: :keep,
    require: :keep,
    parallel: :boolean,
    parallel_require: :keep,
    config: :keep,
    halt: :boolean,
    compile: :boolean,
    deps_check: :boolean,
    start: :boolean,
    archives_check: :boolean,
    elixir_version_check: :boolean
  ]

  @aliases [e: :eval, r: :require, p: :parallel, c: :config]

  @values [
    type: ~w(all time memory calls),
    sort: ~w(time memory calls per_call),
    report: ~w(process total),
    engine: ~w(counters tracer)
  ]

  @types %{all: :all, time: :call_time, memory: :call_memory, calls: :call_count}
  @columns %{time: :time, memory: :words, calls: :calls, per_call: :measurement_per_call}

  @impl true
  def run(args) do
    {switches, head} = OptionParser.parse!(args, strict: @switches, aliases: @aliases)
    options = Enum.map(switches, &value/1)
    Mix.Task.reenable("profile.emberl")

    Mix.Tasks.Run.run(
      ["--no-mix-exs" | args],
      options,
      head,
      &profile_code(&1, options),
      &profile_code(File.read!(&1), options)
    )
  end

  defp value({:matching, text}) do
    case Mix.Utils.parse_mfa(text) do
      {:ok, [module]} ->
        {:matching, {module, :_, :_}}

      {:ok, [module, function]} ->
        {:matching, {module, function, :_}}

      {:ok, [module, function, arity]} ->
        {:matching, {module, function, arity}}

      :error ->
        Mix.raise(
          "--matching takes Module, Module.function or Module.function/arity, not #{text}"
        )
    end
  end

  defp value({key, text}) do
    case @values[key] do
      nil ->
        {key, text}

      values ->
        text in values || Mix.raise("--#{key} takes #{Enum.join(values, ", ")}, not #{text}")
        {key, String.to_atom(text)}
    end
  end

  # Compiled, not evaluated: what the evaluator does would be in the profile.
  defp profile_code(code, options) do
    quoted = Code.string_to_quoted!(code)

    Code.compile_quoted(
      quote do
        unquote(__MODULE__).profile(fn -> unquote(quoted) end, unquote(Macro.escape(options)))
      end
    )
  end

  @doc """
  Profiles a function and prints the tables; returns its value, or raises what it raised.

  The options are the switches above, with atoms for their values and
  `{module, function, arity}` for `:matching`.
  """
  @spec profile((() -> result), keyword()) :: result when result: term()
  def profile(fun, options \\ []) when is_function(fun, 0) do
    warmup(fun, Keyword.get(options, :warmup, true))
    {_, tally} = :emberl.profile(fun, tally_options(options))
    print(tally, options)
    result(:emberl_tally.info(tally).outcome)
  end

  defp warmup(_fun, false), do: :ok

  defp warmup(fun, true) do
    IO.puts("Warmup...")
    fun.()
  end

  defp tally_options(options) do
    %{
      type: @types[Keyword.get(options, :type, :all)],
      pattern: Keyword.get(options, :matching, {:_, :_, :_}),
      set_on_spawn: Keyword.get(options, :set_on_spawn, true),
      engine: Keyword.get(options, :engine, :auto),
      report: :return
    }
  end

  defp print(tally, options) do
    column = Map.get(@columns, options[:sort], :measurement)
    inspected = :emberl_tally.inspect(tally, Keyword.get(options, :report, :process), column)
    :emberl_tally.format(:standard_io, filter(inspected, options))
    IO.write(["\n", :emberl_tally_report.remarks(:emberl_tally.info(tally))])
  end

  defp filter(inspected, options) do
    for {process, section} <- inspected, into: %{} do
      {process, %{section | lines: Enum.filter(section.lines, &enough?(&1, options))}}
    end
  end

  # What was not measured is not asked for.
  defp enough?(line, options) do
    line.calls >= Keyword.get(options, :calls, 0) and
      Map.get(line, :time_ns, 0) >= 1000 * Keyword.get(options, :time, 0) and
      Map.get(line, :words, 0) >= Keyword.get(options, :memory, 0)
  end

  defp result({:ok, value}), do: value
  defp result({:killed, reason}), do: exit(reason)
  defp result({class, reason, stack}), do: :erlang.raise(class, reason, stack)
end
