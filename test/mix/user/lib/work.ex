defmodule User.Work do
  def run(n), do: Enum.map(1..n, fn x -> double(x) end)
  def double(x), do: {x, x}
end
