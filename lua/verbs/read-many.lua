--[[
  Runs read commands and returns all their replies as one text: a client parses one long text much faster than very many
  short replies.
  KEYS
    none: those of the commands, which may be of many queues
  ARGV
    [1]  JSON: the commands, each a list of its name and arguments
    [2]  JSON: the indices, from 1, of those that read bytes, which JSON cannot hold
  Returns JSON: the reply to each command as Lua has it. The fields of a hash are an object with `map`, an empty list
    is an empty object, nil is false, and a refused command is an object with `err`. Bytes are hexadecimal digits.
]]
local answers, resp, bytes, digits = {}, 2, {}, {}
for _, i in ipairs(cjson.decode(ARGV[2])) do bytes[i] = true end
if next(bytes) then for code = 0, 255 do digits[string.char(code)] = string.format('%02x', code) end end

local function hexadecimal(reply)
  if type(reply) == 'string' then return (string.gsub(reply, '.', digits)) end
  for i, value in ipairs(type(reply) == 'table' and reply or {}) do reply[i] = value and hexadecimal(value) end
  return reply
end

for i, command in ipairs(cjson.decode(ARGV[1])) do
  -- In RESP 3 the fields of a hash are a table by name, which the client need not rebuild.
  local wanted = command[1] == 'hgetall' and 3 or 2
  if wanted ~= resp then
    redis.setresp(wanted)
    resp = wanted
  end
  answers[i] = redis.pcall(unpack(command))
  if bytes[i] then answers[i] = hexadecimal(answers[i]) end
end
return cjson.encode(answers)
