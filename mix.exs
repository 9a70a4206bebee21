# SPDX-License-Identifier: Apache-2.0
# For Elixir projects that want `mix profile.emberl`; nothing else needs it.
defmodule Mix.Tasks.Compile.EmberlLibrary do
  @moduledoc false
  use Mix.Task.Compiler

  @impl true
  def run(_args) do
    make =
      System.find_executable("gmake") || System.find_executable("make") ||
        Mix.raise("emberl takes make to build")

    case System.cmd(make, ["library"], into: IO.stream(:stdio, :line), stderr_to_stdout: true) do
      {_, 0} -> Mix.Project.build_structure()
      {_, status} -> Mix.raise("make library ended with #{status}")
    end

    {:ok, []}
  end
end

defmodule Emberl.MixProject do
  use Mix.Project

  {:ok, [{:application, :emberl, source}]} =
    :file.consult(Path.join([__DIR__, "erl", "emberl.app.src"]))

  @source source

  def project do
    [
      app: :emberl,
      version: to_string(@source[:vsn]),
      description: to_string(@source[:description]),
      compilers: [:emberl_library | Mix.compilers()],
      erlc_paths: ["erl"],
      deps: []
    ]
  end

  def application, do: Keyword.take(@source, [:mod, :registered])
end
