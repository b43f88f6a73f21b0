"""What a person types after `xapi`: one verb a file, imported only when it is called."""
