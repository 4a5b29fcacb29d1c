"""Common English words: nearly all are one token, with the space before them, in the tokenizers in use."""

_TEXT = """
about above across action active after again against age agree air all allow almost alone along already also always
among amount animal answer any appear apple area arm army around arrive art ask away baby back bad ball band bank
base basic bear beat beautiful because become bed before begin behind believe below beside best better between
beyond big bird bit black blood blue board boat body book born both bottom box boy bread break bridge bright bring
broad brother brown build burn business busy buy call camera camp can capital captain car card care carry case cat
catch cause center central century certain chair chance change character charge chart check chief child choice
choose church circle city claim class clean clear climb clock close cloth cloud coast coat code cold collect color
column come common company compare complete condition connect consider contain continue control cook cool copy corn
corner correct cost cotton could count country couple course court cover create cross crowd current cut dance danger
dark daughter day dead deal dear death decide deep degree design desert develop die difference difficult direct
discover discuss distance divide doctor dog dollar door double doubt down draw dream dress drink drive drop dry
during duty each ear early earth east easy eat edge education effect egg eight either electric element else end
enemy energy engine enough enter equal escape especially even evening event ever every exact example except exercise
expect experience experiment explain express eye face fact fair fall family famous far farm fast fat father favor
fear feed feel few field fight figure fill final find fine finger finish fire first fish fit five flat floor flow
flower fly follow food foot force foreign forest forget form forward found four free fresh friend front fruit full
fun game garden gas gather general gentle gift girl give glad glass go gold gone good govern grand grass gray great
green ground group grow guess guide gun hair half hand happen happy hard hat have head hear heart heat heavy height
held help here high hill history hit hold hole home hope horse hospital hot hotel hour house how huge human hundred
hunt hurry ice idea imagine inch include increase indicate industry insect inside instead interest iron island job
join joy jump just keep key kill kind king kitchen knee know lady lake land language large last late laugh law lay
lead learn least leave left leg length less letter level library lie life lift light like line list listen little
live local log long look lost lot loud love low machine mail main major make man many map march mark market mass
master match material matter may mean measure meat meet member metal method middle might mile milk million mind mine
minute miss model modern moment money month moon more morning most mother motion mountain mouth move much music must
name nation natural nature near necessary neck need neighbor never new next night nine noise none north nose note
nothing notice noun now number object observe ocean offer office often oil old once one only open operate opposite
order organ original other our out over own oxygen page paint pair paper paragraph parent park part particular party
pass past path pattern pay people perhaps period person phrase pick picture piece place plain plan plane planet
plant play please plural point police poor popular port position possible post pound power practice prepare present
president press pretty print probable problem process produce product program proper property protect prove provide
public pull push put quality quart question quick quiet quite race radio rail rain raise range rate rather reach
read ready real reason receive record red region remember repeat reply report represent require rest result return
rich ride right ring rise river road rock roll room root rope rose round row rule run safe sail salt same sand save
say scale school science score sea search season seat second secret section see seed seem select self sell send
sense sentence separate serve set settle seven several shape share sharp sheet shell shine ship shoe shop short
should shoulder shout show side sight sign silent silver similar simple since sing single sister sit six size skill
skin sky sleep slip slow small smell smile smoke snow social soft soil soldier solution solve some son song soon
sound south space speak special speech speed spell spend spoke spot spread spring square stage stand star start
state station stay steam steel step stick still stone stop store story straight strange stream street stretch string
strong student study subject success such sudden sugar suggest suit summer sun supply support sure surface surprise
swim symbol system table tail take talk tall teach team tell temperature ten term test than thank their then there
these they thick thin thing think third those though thought thousand three through throw thus tie time tiny tire
together tone tool top total touch toward town track trade train travel tree triangle trip trouble truck true try
tube turn twenty two type uncle under unit until use usual valley value various vary verb very view village visit
voice vowel wait walk wall want war warm wash watch water wave way wear weather week weight well west what wheel
when where which while white who whole why wide wife wild will win wind window winter wire wish with within woman
wonder wood word work world would write wrong yard year yellow yes yet young
"""

WORDS = tuple(_TEXT.split())
