--[[
  Runs read commands and returns all their replies as one text: a client parses one long text much faster than very many
  short replies.
  KEYS
    none: those of the commands, which may be of many queues
  ARGV
    [1]  JSON: the commands, each a list of its name and arguments
  Returns JSON: the reply to each command as Lua has it. A map is a flat list, an empty list may be an empty object,
    nil is false, and a refused command is an object with `err`.
]]
local answers = {}
for i, command in ipairs(cjson.decode(ARGV[1])) do answers[i] = redis.pcall(unpack(command)) end
return cjson.encode(answers)
