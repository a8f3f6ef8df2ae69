module example.com/ctrlz/clients/go

go 1.19
