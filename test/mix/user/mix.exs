defmodule User.MixProject do
  use Mix.Project

  def project do
    [app: :user, version: "0.1.0", deps: [{:emberl, git: System.fetch_env!("EMBERL")}]]
  end
end
