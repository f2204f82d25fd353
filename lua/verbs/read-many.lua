--[[
  Runs read commands and returns all their replies as one text: a client parses one long text much faster than very many
  short replies.
  KEYS
    none: those of the commands, which may be of many queues
  ARGV
    [1]  JSON: the commands, each a list of its name and arguments
  Returns JSON: the reply to each command as Lua has it. The fields of a hash are an object with `map`, an empty list
    is an empty object, nil is false, and a refused command is an object with `err`.
]]
local answers, resp = {}, 2
for i, command in ipairs(cjson.decode(ARGV[1])) do
  -- In RESP 3 the fields of a hash are a table by name, which the client need not rebuild.
  local wanted = command[1] == 'hgetall' and 3 or 2
  if wanted ~= resp then
    redis.setresp(wanted)
    resp = wanted
  end
  answers[i] = redis.pcall(unpack(command))
end
return cjson.encode(answers)
