User.Work.run(10)
